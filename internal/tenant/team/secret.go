package team

import (
	"context"
	"time"
)

// Secret is what is known of a secret by a name that E2B's clients gave it.
// Its value is in the secret store, under another name.
type Secret struct {
	ID        string            `json:"id"` // "sec_…"
	Owner     string            `json:"owner"`
	Name      string            `json:"name"` // lower case
	Kept      string            `json:"kept"` // its name in the secret store
	Version   int64             `json:"version"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// Secrets keeps them. *store.SQLite is one.
type Secrets interface {
	// NamedSecrets returns those of owner, by name.
	NamedSecrets(ctx context.Context, owner string) ([]Secret, error)
	// PutNamedSecret keeps one. That the owner has another of that name is a
	// Conflict.
	PutNamedSecret(ctx context.Context, s Secret) error
	// DeleteNamedSecret deletes one; that there is none is no error.
	DeleteNamedSecret(ctx context.Context, id string) error
}

// Settings is what the daemon remembers. *store.SQLite is one.
type Settings interface {
	// Setting returns "" for one that was never set.
	Setting(ctx context.Context, name string) (string, error)
	SetSetting(ctx context.Context, name, value string) error
}

package skill

import (
	"context"
	"os"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const writable = box.MountWritable

type sums struct{}

func undo(*os.Root) error { return nil }

var errLater = sandbox.Errorf(sandbox.Unsupported, "skills are not built into this version")

// List returns the packages, the newest first. Broken ones are left out.
func (s *Store) List(ctx context.Context) ([]box.Skill, error) { return nil, errLater }

// Get returns one package, the newest where several have the name.
func (s *Store) Get(ctx context.Context, name string) (box.Skill, error) {
	return box.Skill{}, errLater
}

// Create makes a package, or takes one in: a directory below the store
// becomes one where it is, one outside is copied.
func (s *Store) Create(ctx context.Context, in box.SkillInput, out Outside) (box.Skill, error) {
	return box.Skill{}, errLater
}

// Update changes what a package says of itself, and its instructions.
func (s *Store) Update(ctx context.Context, name string, in box.SkillInput) (box.Skill, error) {
	return box.Skill{}, errLater
}

// Delete removes a package.
func (s *Store) Delete(ctx context.Context, name string) (box.SkillDeleted, error) {
	return box.SkillDeleted{}, errLater
}

// Scan returns the one package in or below a directory of the host.
func (s *Store) Scan(ctx context.Context, path string, out Outside) (box.Skill, error) {
	return box.Skill{}, errLater
}

// Files lists a directory of a package.
func (s *Store) Files(ctx context.Context, name string, q FileQuery) (box.SkillFiles, error) {
	return box.SkillFiles{}, errLater
}

// Read returns a text file of a package.
func (s *Store) Read(ctx context.Context, name, path string) (box.SkillContent, error) {
	return box.SkillContent{}, errLater
}

// Write makes or replaces a text file of a package.
func (s *Store) Write(ctx context.Context, name, path, content string) (box.SkillWritten, error) {
	return box.SkillWritten{}, errLater
}

// PreviewZip returns the packages of an archive as InstallZip would name
// them.
func (s *Store) PreviewZip(ctx context.Context, zip []byte, q ZipQuery) ([]box.Skill, error) {
	return nil, errLater
}

// InstallZip takes in packages of an archive, all that are chosen or none.
func (s *Store) InstallZip(ctx context.Context, zip []byte, q ZipQuery) ([]box.Skill, error) {
	return nil, errLater
}

// Place says where in the store a mount's directory is; not ok is one that
// is outside, and is no skill.
func (s *Store) Place(m box.Mount) (p Placed, ok bool, err error) { return Placed{}, false, errLater }

// Bring sees to it that a sandbox has packages as the store has them.
func (s *Store) Bring(ctx context.Context, g Guest, b *Brought, want []Placed) (notices []string, err error) {
	return nil, errLater
}

// TakeBack takes what a sandbox made of a package into the store.
func (s *Store) TakeBack(ctx context.Context, g Guest, b *Brought, p Placed) (Taken, error) {
	return Taken{}, errLater
}

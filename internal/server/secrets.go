package server

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// Secrets keeps secrets for their owners. A name is its owner's alone. Nothing
// that it returns has a value in it. *secret.Store is one, and documents each
// method.
type Secrets interface {
	List(ctx context.Context, owner string) ([]secret.Info, error)
	Put(ctx context.Context, owner, name string, src secret.Source) (secret.Info, error)
	Rotate(ctx context.Context, owner, name string, src *secret.Source) (secret.Info, error)
	Remove(ctx context.Context, owner, name string, force bool) error
}

var _ Secrets = (*secret.Store)(nil)

// secretAPI is what /v1/ has about secrets.
type secretAPI struct{ store Secrets } // nil: there is none

// kept returns the store, or says that there is none.
func (a secretAPI) kept() (Secrets, error) {
	if a.store == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "secrets: this daemon keeps none").
			WithHint("give the value with the sandbox: --secret NAME=env:VARIABLE")
	}
	return a.store, nil
}

func (a secretAPI) list(w http.ResponseWriter, r *http.Request) {
	store, err := a.kept()
	if err != nil {
		wire.Error(w, err)
		return
	}
	list, err := store.List(r.Context(), auth.Of(r).Caller.Owner)
	out := make([]api.Secret, 0, len(list))
	for _, info := range list {
		out = append(out, viewSecret(info))
	}
	answer(w, http.StatusOK, out, err)
}

func (a secretAPI) put(w http.ResponseWriter, r *http.Request) {
	store, req, err := a.request(r)
	if err == nil && req.Name == "" {
		err = sandbox.Errorf(sandbox.Invalid, "name: it is missing")
	}
	var src *secret.Source
	if err == nil {
		src, err = source(req)
	}
	if err == nil && src == nil {
		err = sandbox.Errorf(sandbox.Invalid, "secret: nothing says where its value is").WithHint("give a value, a file or a command")
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	info, err := store.Put(r.Context(), auth.Of(r).Caller.Owner, req.Name, *src)
	answer(w, http.StatusCreated, viewSecret(info), err)
}

func (a secretAPI) rotate(w http.ResponseWriter, r *http.Request) {
	store, req, err := a.request(r)
	if err == nil && req.Name != "" {
		err = sandbox.Errorf(sandbox.Invalid, "name: the path has it")
	}
	var src *secret.Source
	if err == nil {
		src, err = source(req)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	info, err := store.Rotate(r.Context(), auth.Of(r).Caller.Owner, r.PathValue("name"), src)
	answer(w, http.StatusOK, viewSecret(info), err)
}

func (a secretAPI) remove(w http.ResponseWriter, r *http.Request) {
	store, err := a.kept()
	force := false
	if err == nil {
		force, err = flag(r, "force")
	}
	if err == nil {
		err = store.Remove(r.Context(), auth.Of(r).Caller.Owner, r.PathValue("name"), force)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// request reads what a secret is to be. Errors of its decoding name
// fields, never what was in them.
func (a secretAPI) request(r *http.Request) (Secrets, api.SecretRequest, error) {
	var req api.SecretRequest
	store, err := a.kept()
	if err == nil {
		err = wire.Decode(r, &req, false)
	}
	if err == nil && auth.Of(r).Peer == nil && (req.File != "" || len(req.Command) > 0) {
		err = sandbox.Errorf(sandbox.Denied, "secret: files and commands are for users of the daemon's host").WithHint("give the value")
	}
	return store, req, err
}

// source is where a request says that a value is; nil where it says nothing.
// That it says one thing alone is for the store to check.
func source(req api.SecretRequest) (*secret.Source, error) {
	ttl, err := millis("ttl_ms", req.TTLMillis)
	if err != nil {
		return nil, err
	}
	src := &secret.Source{File: req.File, Command: req.Command, TTL: ttl, Key: req.Key}
	switch {
	case req.Value != nil && *req.Value == "":
		return nil, sandbox.Errorf(sandbox.Invalid, "value: it is empty")
	case req.Value != nil:
		src.Value = secret.NewValue([]byte(*req.Value))
	case req.File == "" && len(req.Command) == 0 && ttl != 0:
		return nil, sandbox.Errorf(sandbox.Invalid, "ttl_ms: it goes with a command alone")
	case req.File == "" && len(req.Command) == 0:
		return nil, nil
	}
	return src, nil
}

// viewSecret is a secret as its owner sees it.
func viewSecret(i secret.Info) api.Secret {
	out := api.Secret{
		Name: i.Name, Source: string(i.Kind), File: i.File, Command: i.Command, TTLMillis: i.TTL.Milliseconds(),
		CreatedAt: i.CreatedAt, LastUsedAt: i.LastUsed, Key: i.Key, Damaged: i.Damaged, Notes: i.Notes,
	}
	if i.RotatedAt.After(i.CreatedAt) {
		out.RotatedAt = i.RotatedAt
	}
	return out
}

package e2b

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// Bounds of secrets, as E2B has them.
const (
	secretPrefix       = "sec_"
	maxSecretName      = 128 // bytes
	maxMetadata        = 32  // entries
	maxMetadataKey     = 128 // bytes
	maxMetadataValue   = 1024
	maxMetadataInTotal = 8192

	// keptPrefix begins the names that values have in the secret store. Names of
	// E2B's secrets need not be such as the store takes.
	keptPrefix = "E2B_SEC_"
)

// secretView is a secret as clients see it. It has no value.
type secretView struct {
	ID        string            `json:"secretID"`
	Name      string            `json:"name"`
	Version   int64             `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

func viewSecret(s team.Secret) secretView {
	v := secretView{s.ID, s.Name, s.Version, s.Metadata, s.CreatedAt, s.UpdatedAt}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	return v
}

// secretsReady says whether there is where secrets can be kept.
func (h *handler) secretsReady() error {
	if h.o.Teams.Secrets == nil || h.o.Teams.Values == nil {
		return lacks("secrets")
	}
	return nil
}

// secretName returns the canonical form of a name.
func secretName(s string) (string, error) {
	name := strings.ToLower(s)
	ok := name != "" && len(name) <= maxSecretName && !strings.HasPrefix(name, secretPrefix)
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z'
	}
	if !ok {
		// What is no name may be the value, in the wrong place: it is not repeated.
		return "", sandbox.Errorf(sandbox.Invalid, "name of a secret: 1 to %d letters, digits, \"_\" and \"-\", and not %s… at its start",
			maxSecretName, secretPrefix)
	}
	return name, nil
}

func checkMetadata(m map[string]string) error {
	total := 0
	for k, v := range m {
		if k == "" || len(k) > maxMetadataKey || len(v) > maxMetadataValue {
			return sandbox.Errorf(sandbox.Invalid, "metadata: keys of 1 to %d bytes, values of at most %d", maxMetadataKey, maxMetadataValue)
		}
		total += len(k) + len(v)
	}
	if len(m) > maxMetadata || total > maxMetadataInTotal {
		return sandbox.Errorf(sandbox.Invalid, "metadata: at most %d entries and %d bytes", maxMetadata, maxMetadataInTotal)
	}
	return nil
}

// findSecret returns the secret that the path names, by ID or name.
func (h *handler) findSecret(r *http.Request, c Caller) (team.Secret, error) {
	if err := h.secretsReady(); err != nil {
		return team.Secret{}, err
	}
	return h.secretOf(r.Context(), c.Owner, r.PathValue("id"))
}

func (h *handler) secretOf(ctx context.Context, owner, ref string) (team.Secret, error) {
	all, err := h.o.Teams.Secrets.NamedSecrets(ctx, owner)
	if err != nil {
		return team.Secret{}, err
	}
	ref = strings.ToLower(ref)
	for _, s := range all {
		if s.ID == ref || s.Name == ref {
			return s, nil
		}
	}
	return team.Secret{}, sandbox.Errorf(sandbox.NotFound, "secret: not found")
}

func (h *handler) listSecrets(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := h.secretsReady(); err != nil {
		return err
	}
	q, err := parse(r, "limit", "nextToken")
	if err != nil {
		return err
	}
	limit, err := q.number("limit", maxPage, 1, maxPage)
	if err != nil {
		return err
	}
	after := q.get("nextToken")
	if after != "" {
		if after, err = secretName(after); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "nextToken: not one of this server's")
		}
	}
	all, err := h.o.Teams.Secrets.NamedSecrets(r.Context(), c.Owner)
	if err != nil {
		return err
	}
	out := []secretView{}
	for _, s := range all {
		if s.Name <= after {
			continue
		}
		if len(out) == limit {
			w.Header().Set("X-Next-Token", out[len(out)-1].Name)
			break
		}
		out = append(out, viewSecret(s))
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

func (h *handler) getSecret(w http.ResponseWriter, r *http.Request, c Caller) error {
	s, err := h.findSecret(r, c)
	if err == nil {
		wire.JSON(w, http.StatusOK, viewSecret(s))
	}
	return err
}

func source(value *string) (secret.Source, error) {
	if value == nil || *value == "" {
		return secret.Source{}, sandbox.Errorf(sandbox.Invalid, "value: it is missing")
	}
	return secret.Source{Value: secret.NewValue([]byte(*value))}, nil
}

// makeSecret keeps the value first and its name second: a value that no name
// leads to harms nobody, and the other way round the name would lie.
func (h *handler) makeSecret(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := h.secretsReady(); err != nil {
		return err
	}
	var req struct {
		Name     string            `json:"name"`
		Value    *string           `json:"value"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	name, err := secretName(req.Name)
	if err != nil {
		return err
	}
	src, err := source(req.Value)
	if err == nil {
		err = checkMetadata(req.Metadata)
	}
	if err != nil {
		return err
	}
	h.secretTurn.Lock()
	defer h.secretTurn.Unlock()
	if err := h.roomForSecret(r.Context(), c.Owner, name); err != nil {
		return err
	}
	mark := strings.ToLower(rand.Text())
	now := h.now().UTC()
	s := team.Secret{
		ID: secretPrefix + mark, Owner: c.Owner, Name: name, Kept: keptPrefix + strings.ToUpper(mark),
		Version: 1, Metadata: req.Metadata, CreatedAt: now, UpdatedAt: now,
	}
	info, err := h.o.Teams.Values.Put(r.Context(), c.Owner, s.Kept, src)
	if err != nil {
		return unnamed(err, s)
	}
	if err := h.o.Teams.Secrets.PutNamedSecret(r.Context(), s); err != nil {
		if rerr := h.o.Teams.Values.Remove(context.WithoutCancel(r.Context()), c.Owner, s.Kept, true); rerr != nil {
			h.o.Log.Warn("remove a value without a name", "error", rerr)
		}
		return err
	}
	noteSecret(w, info)
	wire.JSON(w, http.StatusCreated, viewSecret(s))
	return nil
}

func (h *handler) roomForSecret(ctx context.Context, owner, name string) error {
	all, err := h.o.Teams.Secrets.NamedSecrets(ctx, owner)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(s team.Secret) bool { return s.Name == name }) {
		return sandbox.Errorf(sandbox.Conflict, "secret: there is one of that name").WithHint("give it another value, or choose another name")
	}
	if h.o.Teams.Book != nil {
		if most := h.o.Teams.Book.Limits(owner).Secrets; most > 0 && len(all) >= most {
			return sandbox.Errorf(sandbox.Conflict, "there are %d secrets of this team, and no more are kept", len(all)).WithHint("delete one")
		}
	}
	return nil
}

// unnamed gives an error of the store the name that the client knows.
func unnamed(err error, s team.Secret) error {
	e := sandbox.Errorf(sandbox.KindOf(err), "%s", strings.ReplaceAll(wire.Describe(err).Message, s.Kept, s.Name))
	e.Err = err
	return e
}

func noteSecret(w http.ResponseWriter, info secret.Info) {
	if len(info.Notes) > 0 {
		w.Header().Set(api.HeaderNotice, strings.Join(info.Notes, "; "))
	}
}

// updateSecret gives a secret another value. Sandboxes that use it have the
// new one with their next request.
func (h *handler) updateSecret(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Value    *string            `json:"value"`
		Metadata *map[string]string `json:"metadata"`
	}
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	src, err := source(req.Value)
	if err == nil && req.Metadata != nil {
		err = checkMetadata(*req.Metadata)
	}
	if err != nil {
		return err
	}
	h.secretTurn.Lock()
	defer h.secretTurn.Unlock()
	s, err := h.findSecret(r, c)
	if err != nil {
		return err
	}
	info, err := h.o.Teams.Values.Rotate(r.Context(), c.Owner, s.Kept, &src)
	if err != nil {
		return unnamed(err, s)
	}
	s.Version++
	s.UpdatedAt = h.now().UTC()
	if req.Metadata != nil {
		s.Metadata = *req.Metadata
	}
	if err := h.o.Teams.Secrets.PutNamedSecret(r.Context(), s); err != nil {
		return err
	}
	noteSecret(w, info)
	wire.JSON(w, http.StatusOK, viewSecret(s))
	return nil
}

// deleteSecret makes a secret useless at once: requests of sandboxes that
// still need it are refused.
func (h *handler) deleteSecret(w http.ResponseWriter, r *http.Request, c Caller) error {
	h.secretTurn.Lock()
	defer h.secretTurn.Unlock()
	s, err := h.findSecret(r, c)
	if err != nil {
		return err
	}
	if err := h.o.Teams.Values.Remove(r.Context(), c.Owner, s.Kept, true); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return unnamed(err, s)
	}
	if err := h.o.Teams.Secrets.DeleteNamedSecret(r.Context(), s.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// A secret is named where it is to be put in: "${e2b.secrets.NAME}".
const (
	placeOpen  = "${e2b.secrets."
	placeClose = "}"
)

// fillSecrets makes spec use the owner's secrets where a header of its network
// rules has nothing but the place of one: Bearer ${e2b.secrets.NAME}. A place
// anywhere else is refused, for nothing would fill it in.
func (h *handler) fillSecrets(ctx context.Context, owner string, spec *sandbox.Spec, values sandbox.SecretValues) error {
	for name, value := range spec.Env {
		if strings.Contains(value, placeOpen) {
			return sandbox.Errorf(sandbox.Unsupported, "envVars.%.80s: a secret is put into requests alone", name).
				WithHint("name it in a header of network.rules")
		}
	}
	for name, value := range values {
		rest, begins := strings.CutPrefix(value, placeOpen)
		ref, ends := strings.CutSuffix(rest, placeClose)
		if !strings.Contains(value, placeOpen) {
			continue
		}
		if !begins || !ends || strings.Contains(ref, placeOpen) {
			return sandbox.Errorf(sandbox.Unsupported, "network.rules: a secret can only be the whole value of a header, after its scheme").
				WithHint("Bearer ${e2b.secrets.NAME}, or the secret alone")
		}
		if err := h.secretsReady(); err != nil {
			return err
		}
		s, err := h.secretOf(ctx, owner, ref)
		if err != nil {
			return sandbox.Errorf(sandbox.Invalid, "network.rules: there is no secret %.80q", ref)
		}
		delete(values, name)
		useSecret(spec, name, s.Kept)
	}
	return nil
}

// useSecret puts the secret kept in the place of a sandbox's own.
func useSecret(spec *sandbox.Spec, own, kept string) {
	spec.Secrets = slices.DeleteFunc(spec.Secrets, func(n string) bool { return n == own || n == kept })
	spec.Secrets = append(spec.Secrets, kept)
	for i := range spec.Policy.Rules {
		for j := range spec.Policy.Rules[i].Secrets {
			if s := &spec.Policy.Rules[i].Secrets[j]; s.Name == own {
				s.Name = kept
			}
		}
	}
}

package e2b

import (
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// mask is what may be shown of a key.
type mask struct {
	Prefix string `json:"prefix"`
	Length int    `json:"valueLength"`
	First  string `json:"maskedValuePrefix"`
	Last   string `json:"maskedValueSuffix"`
}

// maker is who made a key: an ID, and no address.
type maker struct {
	ID    string  `json:"id"`
	Email *string `json:"email"`
}

// apiKey is a key as lists have it; Key is set in the answer to its making
// alone.
type apiKey struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Key       string     `json:"key,omitempty"`
	Mask      mask       `json:"mask"`
	CreatedAt time.Time  `json:"createdAt"`
	CreatedBy *maker     `json:"createdBy"`
	LastUsed  *time.Time `json:"lastUsed"`
}

func viewKey(k team.Key, secret string) apiKey {
	out := apiKey{
		ID: k.ID, Name: k.Name, Key: secret, CreatedAt: k.CreatedAt,
		Mask: mask{Prefix: k.Mask.Prefix, Length: k.Mask.Length, First: k.Mask.First, Last: k.Mask.Last},
	}
	if k.MadeBy != "" {
		out.CreatedBy = &maker{ID: k.MadeBy}
	}
	if !k.LastUsed.IsZero() {
		out.LastUsed = &k.LastUsed
	}
	return out
}

// keys returns what keeps keys.
func (h *handler) keys() (*team.Ring, error) {
	if h.o.Teams.Ring == nil {
		return nil, lacks("keys")
	}
	return h.o.Teams.Ring, nil
}

func (h *handler) listKeys(w http.ResponseWriter, r *http.Request, c Caller) error {
	ring, err := h.keys()
	if err != nil {
		return err
	}
	out := []apiKey{}
	for _, k := range ring.List(c.Owner) {
		out = append(out, viewKey(k, ""))
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

// makeKey makes a key that allows what its maker's does, but for making keys
// and for administration.
func (h *handler) makeKey(w http.ResponseWriter, r *http.Request, c Caller) error {
	return h.makeKeyOf(w, r, c, c.Owner, team.MakerID(c.Credential))
}

func (h *handler) makeKeyOf(w http.ResponseWriter, r *http.Request, c Caller, owner, madeBy string) error {
	ring, err := h.keys()
	if err != nil {
		return err
	}
	name, err := keyName(r)
	if err != nil {
		return err
	}
	grant, err := c.Grant.Within(nil)
	if err != nil {
		return err
	}
	k, secret, err := ring.Make(r.Context(), owner, name, madeBy, grant)
	if err == nil {
		wire.JSON(w, http.StatusCreated, viewKey(k, secret))
	}
	return err
}

func keyName(r *http.Request) (string, error) {
	var req struct {
		Name *string `json:"name"`
	}
	err := wire.Decode(r, &req, false)
	if err == nil && req.Name == nil {
		err = sandbox.Errorf(sandbox.Invalid, "name: it is missing")
	}
	if err != nil {
		return "", err
	}
	return *req.Name, nil
}

func (h *handler) renameKey(w http.ResponseWriter, r *http.Request, c Caller) error {
	ring, err := h.keys()
	if err != nil {
		return err
	}
	id, err := uuidOf(r, "id")
	if err != nil {
		return err
	}
	name, err := keyName(r)
	if err == nil {
		_, err = ring.Rename(r.Context(), c.Owner, id, name)
	}
	if err == nil {
		w.WriteHeader(http.StatusAccepted)
	}
	return err
}

func (h *handler) deleteKey(w http.ResponseWriter, r *http.Request, c Caller) error {
	return h.deleteKeyOf(w, r, c.Owner, "id")
}

func (h *handler) deleteKeyOf(w http.ResponseWriter, r *http.Request, owner, param string) error {
	ring, err := h.keys()
	if err != nil {
		return err
	}
	id, err := uuidOf(r, param)
	if err == nil {
		err = ring.Delete(r.Context(), owner, id)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func uuidOf(r *http.Request, param string) (string, error) {
	id := r.PathValue(param)
	if !team.ValidID(id) {
		return "", sandbox.Errorf(sandbox.Invalid, "%.80q: not an ID, which is a UUID in lower case", id)
	}
	return id, nil
}

// makeToken refuses: access tokens went out of use, and E2B makes none any
// more. What bears one may bear a key.
func (h *handler) makeToken(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	writeErrorAs(w, http.StatusGone, sandbox.Errorf(sandbox.Unsupported, "access tokens are not made any more").
		WithHint("use a key: E2B_API_KEY"))
	return nil
}

func (h *handler) deleteToken(_ http.ResponseWriter, r *http.Request, _ Caller) error {
	id, err := uuidOf(r, "id")
	if err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.NotFound, "access token %s: not found", id)
}

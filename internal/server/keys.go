package server

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// keyAPI is what /v1/ has about keys.
type keyAPI struct{ ring *team.Ring } // nil: none is kept

// kept returns what keeps keys, or says that nothing does.
func (a keyAPI) kept() (*team.Ring, error) {
	if a.ring == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "keys: this daemon keeps none")
	}
	return a.ring, nil
}

// whoseKeys returns whose keys p looks after: "" for everybody's.
func whoseKeys(p *auth.Principal) string {
	if p.Allows(key.Admin) && !p.Acting {
		return ""
	}
	return p.Caller.Owner
}

func (a keyAPI) list(w http.ResponseWriter, r *http.Request) {
	ring, err := a.kept()
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := []api.Key{}
	for _, k := range ring.List(whoseKeys(auth.Of(r))) {
		out = append(out, viewKey(k))
	}
	wire.JSON(w, http.StatusOK, out)
}

func viewKey(k team.Key) api.Key {
	v := api.Key{
		ID: k.ID, Name: k.Name, Team: team.Name(k.Owner), TeamID: team.ID(k.Owner),
		Mask: k.Mask.Prefix + k.Mask.First + "..." + k.Mask.Last, Paths: k.Paths,
		HostImage: k.HostImage, PrivateNetwork: k.PrivateNetwork, Isolation: k.Isolation, CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsed,
	}
	for _, sc := range k.Scopes {
		v.Scopes = append(v.Scopes, string(sc))
	}
	return v
}

func (a keyAPI) make(w http.ResponseWriter, r *http.Request) {
	var req api.KeyRequest
	ring, err := a.kept()
	if err == nil {
		err = wire.Decode(r, &req, false)
	}
	p := auth.Of(r)
	var owner string
	if err == nil {
		owner, err = teamFor(p, req.Team)
	}
	var grant team.Grant
	if err == nil {
		grant, err = granted(p, req)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	k, secret, err := ring.Make(r.Context(), owner, req.Name, team.MakerID(p.Credential()), grant)
	answer(w, http.StatusCreated, api.NewKey{Key: viewKey(k), Secret: secret}, err)
}

// teamFor returns whose a new key is to be.
func teamFor(p *auth.Principal, name string) (string, error) {
	owner := p.Caller.Owner
	if name != "" {
		if !key.ValidID(name) {
			return "", sandbox.Errorf(sandbox.Invalid, "team %.80q: letters, digits, \".\", \"_\" and \"-\", at most 64", name)
		}
		owner = "key:" + name
	}
	if owner != p.Caller.Owner && !p.Allows(key.Admin) {
		return "", sandbox.Errorf(sandbox.Denied, "team %s: not the team of this key", name)
	}
	return owner, nil
}

// granted is what a request may grant: all that it names must be its maker's.
func granted(p *auth.Principal, req api.KeyRequest) (team.Grant, error) {
	mine := p.Grant()
	asked := make([]key.Scope, len(req.Scopes))
	for i, sc := range req.Scopes {
		asked[i] = key.Scope(sc)
	}
	g, err := mine.Within(asked)
	if err != nil {
		return g, err
	}
	if req.HostImage && !mine.HostImage || req.PrivateNetwork && !mine.PrivateNetwork {
		return g, sandbox.Errorf(sandbox.Denied, "host_image, private_network: who makes the key has not got it")
	}
	if req.Isolation != "" && !sandbox.ValidWall(req.Isolation) {
		return g, sandbox.Errorf(sandbox.Invalid, "isolation %.80q: there is no such wall", req.Isolation).
			WithHint("%s or %s", sandbox.WallGVisor, sandbox.WallProcess)
	}
	if sandbox.WeakerWall(req.Isolation, p.Caller.Floor.Wall) {
		return g, sandbox.Errorf(sandbox.Denied, "isolation %s: who makes the key may have none weaker than %s, by %s",
			req.Isolation, p.Caller.Floor.Wall, p.Caller.Floor.Setting)
	}
	for _, path := range req.Paths {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
			return g, sandbox.Errorf(sandbox.Invalid, "paths: each must be absolute, without \"..\", and not the root directory")
		}
		within := p.Peer != nil && p.Caller.Admin || slices.ContainsFunc(mine.Paths, func(have string) bool {
			return path == have || strings.HasPrefix(path, have+"/")
		})
		if !within {
			return g, sandbox.Errorf(sandbox.Denied, "path %.200q: who makes the key may not name it", path)
		}
	}
	if req.Isolation != "" || !sandbox.WeakerWall(sandbox.WallProcess, mine.Isolation) {
		g.Isolation = req.Isolation // a maker's own is handed down where it is a restriction
	}
	g.HostImage, g.PrivateNetwork, g.Paths = req.HostImage, req.PrivateNetwork, req.Paths
	return g, nil
}

func (a keyAPI) remove(w http.ResponseWriter, r *http.Request) {
	ring, err := a.kept()
	if err == nil {
		err = ring.Delete(r.Context(), whoseKeys(auth.Of(r)), r.PathValue("id"))
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

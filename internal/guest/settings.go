package guest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"sync"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

const maxInit = 1 << 20 // bytes of an /init request

// settings are what commands that start now get, and what /init changes.
type settings struct {
	mu   sync.Mutex
	base map[string]string // what the network needs, below all else
	cfg  map[string]string // the configuration's environment
	init map[string]string // the last /init's
	now  process.Defaults  // its map is replaced, never written to
}

func newSettings(cfg control.Config) *settings {
	s := &settings{cfg: cfg.Env}
	s.now = process.Defaults{User: cfg.User, Cwd: cfg.Cwd}
	s.refreshLocked()
	return s
}

// refreshLocked puts the environment together anew.
func (s *settings) refreshLocked() {
	env := map[string]string{}
	for _, layer := range []map[string]string{s.base, s.cfg, s.init} {
		maps.Copy(env, layer)
	}
	s.now.Env = env
}

// setBase replaces what commands get where nobody says otherwise.
func (s *settings) setBase(env map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = env
	s.refreshLocked()
}

// defaults returns what holds now. The caller does not write to its map.
func (s *settings) defaults() process.Defaults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// health says that the agent answers: with 412 where commands can't be run as
// the sandbox's own user, and with 409, and why, where what they may write to is more than it has to be.
func (a *agent) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if a.unlocked != nil {
		http.Error(w, a.unlocked.Error(), http.StatusConflict)
		return
	}
	if a.noUser {
		http.Error(w, "the sandbox's user can't be one here", http.StatusPreconditionFailed)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// initRequest is what envd's host may send. Fields that are not here are
// ignored, as envd ignores what it does not know; so are the access token,
// for the channel is private, and the time, which a sandbox does not set.
type initRequest struct {
	EnvVars        map[string]string `json:"envVars"`
	DefaultUser    string            `json:"defaultUser"`
	DefaultWorkdir string            `json:"defaultWorkdir"`
}

// init changes the settings. The environment variables replace those of the
// last call, and stand above the configuration's.
func (a *agent) init(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInit))
	var req initRequest
	if err == nil && len(body) > 0 {
		err = strict.Known(body, &req)
	}
	if err == nil {
		err = a.apply(req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.health(w, r)
}

func (a *agent) apply(req initRequest) error {
	if err := control.CheckEnv(req.EnvVars); err != nil {
		return err
	}
	if req.DefaultWorkdir != "" && !path.IsAbs(req.DefaultWorkdir) {
		return errors.New("defaultWorkdir: not an absolute path")
	}
	s := a.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.EnvVars != nil {
		s.init = req.EnvVars
		s.refreshLocked()
	}
	if req.DefaultUser != "" {
		s.now.User = req.DefaultUser
	}
	if req.DefaultWorkdir != "" {
		s.now.Cwd = path.Clean(req.DefaultWorkdir)
	}
	return nil
}

// claim makes env part of the configuration, below what /init sets, which is
// forgotten.
func (a *agent) claim(w http.ResponseWriter, r *http.Request) {
	var req api.Claim
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, control.MaxConfig))
	dec.DisallowUnknownFields()
	err := dec.Decode(&req)
	if err == nil {
		err = errors.Join(control.CheckEnv(req.Env), control.CheckNetwork(req.Network))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := a.settings
	s.mu.Lock()
	cfg := maps.Clone(s.cfg)
	if cfg == nil {
		cfg = map[string]string{}
	}
	maps.Copy(cfg, req.Env)
	s.cfg, s.init = cfg, nil
	s.refreshLocked()
	s.mu.Unlock()
	<-a.connection.done // the first one is not to come last
	if req.Network != nil {
		a.connect(req.Network)
	}
	a.health(w, r)
}

// envs tells the environment that commands get.
func (a *agent) envs(w http.ResponseWriter, _ *http.Request) {
	answer(w, a.connected().Env)
}

// status says what the agent can't do on this kernel.
type status struct {
	ID      string   `json:"id"`
	PIDs    bool     `json:"pids"`    // the number of processes is bounded
	Cgroups bool     `json:"cgroups"` // commands are ended by cgroup
	Lacks   []string `json:"lacks,omitempty"`
}

func (s *status) lack(what string) { s.Lacks = append(s.Lacks, what) }

func (a *agent) serveStatus(w http.ResponseWriter, _ *http.Request) {
	<-a.connection.done
	a.mu.Lock()
	s := a.status
	s.Lacks = slices.Clone(s.Lacks)
	a.mu.Unlock()
	answer(w, s)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone if it fails
}

package guest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/guest/process"
)

const maxInit = 1 << 20 // bytes of an /init request

// settings are what commands that start now get, and what /init changes.
type settings struct {
	mu  sync.Mutex
	cfg map[string]string // the configuration's environment
	now process.Defaults  // its map is replaced, never written to
}

func newSettings(cfg Config) *settings {
	s := &settings{cfg: cfg.Env}
	s.now = process.Defaults{User: cfg.User, Cwd: cfg.Cwd, Env: s.with(nil)}
	return s
}

// with is the configuration's environment with more on top.
func (s *settings) with(more map[string]string) map[string]string {
	env := maps.Clone(s.cfg)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, more)
	return env
}

// defaults returns what holds now. The caller does not write to its map.
func (s *settings) defaults() process.Defaults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// health says that the agent answers.
func (a *agent) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
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
		err = json.Unmarshal(body, &req)
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
	if err := checkEnv(req.EnvVars); err != nil {
		return err
	}
	if req.DefaultWorkdir != "" && !path.IsAbs(req.DefaultWorkdir) {
		return errors.New("defaultWorkdir: not an absolute path")
	}
	s := a.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.EnvVars != nil {
		s.now.Env = s.with(req.EnvVars)
	}
	if req.DefaultUser != "" {
		s.now.User = req.DefaultUser
	}
	if req.DefaultWorkdir != "" {
		s.now.Cwd = path.Clean(req.DefaultWorkdir)
	}
	return nil
}

// claimRequest is what the host says once somebody has taken a box that was
// started before anyone asked for it.
type claimRequest struct {
	Env map[string]string `json:"env"` // on top of the configuration's
}

// claim makes env part of the configuration, below what /init sets.
func (a *agent) claim(w http.ResponseWriter, r *http.Request) {
	var req claimRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxConfig))
	dec.DisallowUnknownFields()
	err := dec.Decode(&req)
	if err == nil {
		err = checkEnv(req.Env)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := a.settings
	s.mu.Lock()
	s.cfg = s.with(req.Env)
	s.now.Env = s.cfg
	s.mu.Unlock()
	a.health(w, r)
}

// envs tells the environment that commands get.
func (a *agent) envs(w http.ResponseWriter, _ *http.Request) {
	answer(w, a.settings.defaults().Env)
}

// status says what the agent can't do on this kernel.
type status struct {
	ID      string   `json:"id"`
	PIDs    bool     `json:"pids"`    // the number of processes is bounded
	Cgroups bool     `json:"cgroups"` // commands are ended by cgroup
	Lacks   []string `json:"lacks,omitempty"`
}

func (s *status) lack(what string) { s.Lacks = append(s.Lacks, what) }

func (a *agent) serveStatus(w http.ResponseWriter, _ *http.Request) { answer(w, a.status) }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone if it fails
}

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/holders"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

const (
	// lockRounds is how often writers are ended, where that was asked for: others may come meanwhile.
	lockRounds = 8
	// maxHolders bounds how many are named.
	maxHolders = 16
)

// startJail starts a jail in which mounts are locked before any command runs.
func startJail(cfg jail.Config, locked []string) (*jail.Jail, error) {
	j, err := jail.Start(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare namespaces: %w", err)
	}
	for _, path := range locked {
		if err := j.SetReadOnly(path, true); err != nil {
			j.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
	return j, nil
}

// lock makes a mount read-only for commands, or writable again.
func (a *agent) lock(w http.ResponseWriter, r *http.Request) {
	var req api.Lock
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMachine))
	dec.DisallowUnknownFields()
	err := dec.Decode(&req)
	if err = errors.Join(err, control.CheckPath(req.Path)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var out api.LockAnswer
	err = a.jail.SetReadOnly(req.Path, req.ReadOnly)
	if errors.Is(err, jail.ErrBusy) && req.EndWriters {
		out.Ended, err = a.endWriters(r, req)
	}
	if errors.Is(err, jail.ErrBusy) {
		out.Holders = a.writers(req.Path)
		out.Busy, err = true, nil
	}
	if err != nil {
		a.log.Warn("change what commands can write to", "path", req.Path, "err", err)
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	answer(w, out)
}

// endWriters ends what has files of the mount open for writing until it can be made read-only. Commands are held still
// meanwhile, where they can be.
func (a *agent) endWriters(r *http.Request, req api.Lock) (ended []api.Holder, err error) {
	killed := func(int) {}
	switch held, herr := a.holding.begin(r.Context(), a.jail.Init()); {
	case errors.Is(herr, errHeld):
		return nil, herr
	case herr != nil:
		a.log.Warn("hold commands", "err", herr)
	default:
		defer a.holding.end()
		killed = held.ReleaseKilled
	}
	for range lockRounds {
		found, err := holders.Writers(ownProc, req.Path)
		if err != nil {
			return ended, err
		}
		for _, h := range found {
			if h.PID == os.Getpid() {
				continue
			}
			one := named(h)
			switch done, err := holders.End(h.PID, req.Path, killed); {
			case err != nil:
				return ended, err
			case done && len(ended) < maxHolders:
				ended = append(ended, one)
			}
		}
		if err = a.jail.SetReadOnly(req.Path, req.ReadOnly); !errors.Is(err, jail.ErrBusy) {
			return ended, err
		}
	}
	return ended, jail.ErrBusy
}

// writers names what has files of a mount open for writing.
func (a *agent) writers(path string) (list []api.Holder) {
	found, err := holders.Writers(ownProc, path)
	if err != nil {
		a.log.Warn("look for writers", "err", err)
	}
	for _, h := range found[:min(len(found), maxHolders)] {
		list = append(list, named(h))
	}
	return list
}

const ownProc = "/proc"

// named is h as commands have it; what the agent itself writes for somebody has no pid.
func named(h holders.Holder) api.Holder {
	out := api.Holder{Program: h.Program, Path: h.Path, Mapped: h.Mapped}
	if h.PID != os.Getpid() {
		out.PID = jail.Inner(h.PID)
	}
	return out
}

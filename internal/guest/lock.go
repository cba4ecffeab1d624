package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/holders"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/still"
)

const (
	// lockRounds is how often what is in the way is ended, where that was asked for: others may come meanwhile.
	lockRounds = 8
	// passPause is how long commands go on before what waits in a socket is looked at again.
	passPause = 20 * time.Millisecond
	// maxHolders bounds how many are named.
	maxHolders = 16
)

// startJail starts a jail in which parts of a mount are read-only before any command runs; nil: none. Where they can't be, problem says why, and
// none may run.
func startJail(cfg jail.Config, lock *api.Lock) (j *jail.Jail, problem, err error) {
	if j, err = jail.Start(cfg); err != nil {
		return nil, nil, fmt.Errorf("prepare namespaces: %w", err)
	}
	if lock != nil {
		problem = j.SetAccess(accessOf(*lock), nil)
	}
	return j, problem, nil
}

func accessOf(l api.Lock) jail.Access {
	a := jail.Access{Mount: l.Path}
	for _, p := range l.Parts {
		a.Parts = append(a.Parts, jail.Part(p))
	}
	return a
}

// lock makes parts of a mount read-only for commands, and the rest writable.
func (a *agent) lock(w http.ResponseWriter, r *http.Request) {
	var req api.Lock
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMachine))
	dec.DisallowUnknownFields()
	err := dec.Decode(&req)
	if err = errors.Join(err, control.CheckLock(&req)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l := &locking{agent: a, req: req}
	out, err := l.run(r)
	if err != nil {
		a.log.Warn("change what commands can write to", "path", req.Path, "err", err)
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	answer(w, out)
}

// locking is one change of what can be written to.
type locking struct {
	*agent
	req  api.Lock
	held *still.Held   // nil: commands go on
	free func(pid int) // lets one end that was killed

	last   bool           // what is in the way now stays there
	search holders.Search // what the last try met
	found  []holders.Holder
}

// errInWay says that found is in the way.
var errInWay = errors.New("something is in the way")

// run tries it until nothing is in the way. What waits in a socket is mostly about to be taken: commands go on for a moment
// then, before whoever has it counts.
func (l *locking) run(r *http.Request) (out api.LockAnswer, err error) {
	for round := range lockRounds {
		l.last = round == lockRounds-1
		if err = l.once(r, &out); !errors.Is(err, errInWay) {
			return out, err
		}
		if !l.onlyPassed() {
			break
		}
		select {
		case <-time.After(passPause):
		case <-r.Context().Done():
			return out, context.Cause(r.Context())
		}
	}
	out.Busy, out.Holders = true, namedAll(l.found)
	for _, p := range l.jail.Access(l.req.Path) {
		out.Now = append(out.Now, api.Part(p))
	}
	return out, nil
}

// once tries it, and ends what is in the way where that was asked for. Where directories are covered, or something is to be
// ended, commands are held still meanwhile.
func (l *locking) once(r *http.Request, out *api.LockAnswer) (err error) {
	l.held, l.free = nil, func(int) {}
	if l.covers() || l.req.EndWriters {
		l.held, err = l.holding.begin(r.Context(), l.jail.Init())
		switch {
		case err == nil:
			defer l.holding.end()
			l.free = l.held.ReleaseKilled
		case errors.Is(err, errHeld) || l.covers():
			return err
		default:
			l.log.Warn("hold commands", "err", err)
		}
	}
	for range lockRounds {
		if err = l.try(); !errors.Is(err, errInWay) || !l.req.EndWriters {
			return err
		}
		ended, eerr := l.end()
		if eerr != nil {
			return eerr
		}
		if len(ended) == 0 {
			return err
		}
		out.Ended = append(out.Ended, ended[:min(len(ended), maxHolders-len(out.Ended))]...)
	}
	return err
}

// onlyPassed reports whether all that is in the way may be a descriptor in a socket.
func (l *locking) onlyPassed() bool {
	return !slices.ContainsFunc(l.found, func(h holders.Holder) bool { return h.How != api.HowPasses })
}

// covers reports whether parts are to be mounts of their own.
func (l *locking) covers() bool {
	for _, p := range l.req.Parts {
		if p.Path != l.req.Path {
			return true
		}
	}
	return false
}

// try does it, unless something is in the way: then that is found.
func (l *locking) try() error {
	err := l.jail.SetAccess(accessOf(l.req), func(now jail.Covered) (err error) {
		l.search = holders.Either(holders.Reaching(now.Dirs), holders.Leading(now.Pins))
		if l.found, err = holders.Find(ownProc, l.others()); err != nil {
			return err
		}
		if len(l.found) == 0 {
			l.found, err = holders.Linked(now.Dirs)
		}
		switch {
		case err != nil:
			return err
		case len(l.found) > 0:
			return errInWay
		case !l.held.Undisturbed():
			return errors.New("commands did not stay still while that was looked at")
		}
		return nil
	})
	occupied, ok := errors.AsType[*jail.OccupiedError](err)
	switch {
	case ok:
		l.search = holders.Within(occupied.Dir)
	case errors.Is(err, jail.ErrBusy):
		l.search = holders.Writing(l.req.Path)
	default:
		return err
	}
	if l.found, err = holders.Find(ownProc, l.search); err == nil {
		err = errInWay
	}
	return err
}

// others is the search without this process, whose work for others is not done while commands are held.
func (l *locking) others() holders.Search {
	return func(at string) (holders.Holder, bool) {
		if at == fmt.Sprintf("%s/%d", ownProc, os.Getpid()) {
			return holders.Holder{}, false
		}
		return l.search(at)
	}
}

// end ends what was found to be in the way.
func (l *locking) end() (ended []api.Holder, err error) {
	for _, h := range l.found {
		if h.PID == os.Getpid() || h.PID == 0 || h.How == api.HowPasses && !l.last {
			continue
		}
		one := named(h)
		done, err := holders.End(h.PID, l.search, l.free)
		if err != nil {
			return ended, err
		}
		if done {
			ended = append(ended, one)
		}
	}
	return ended, nil
}

const ownProc = "/proc"

func namedAll(found []holders.Holder) (list []api.Holder) {
	for _, h := range found[:min(len(found), maxHolders)] {
		list = append(list, named(h))
	}
	return list
}

// named is h as commands have it; what the agent itself writes for somebody has no pid.
func named(h holders.Holder) api.Holder {
	out := api.Holder{Program: h.Program, Path: h.Path, How: h.How}
	if h.PID != os.Getpid() && h.PID != 0 {
		out.PID = jail.Inner(h.PID)
	}
	return out
}

package action

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
)

// maxShells bounds the shells that are known: those that have ended make room.
const maxShells = 64

// shell is one that was opened.
type shell struct {
	id, cwd string
	cmd     *process.Command // nil: it is being opened

	mu         sync.Mutex
	cols, rows int
}

// state tells of a shell as it is now.
func (sh *shell) state() action.Shell {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	out := action.Shell{
		ShellID: sh.id, CWD: valid(sh.cwd), Cols: sh.cols, Rows: sh.rows,
		State: action.Running, StartedAt: seconds(sh.cmd.Started()),
	}
	if exit, ended := sh.cmd.Exit(); ended {
		at := seconds(sh.cmd.Started().Add(exit.Duration))
		out.State, out.EndedAt, out.ExitCode = action.Stopped, &at, &exit.Code
	}
	return out
}

func (sh *shell) ended() bool {
	if sh.cmd == nil {
		return false
	}
	_, ended := sh.cmd.Exit()
	return ended
}

// shells are all that are known, by their ids.
type shells struct {
	mu    sync.Mutex
	known map[string]*shell
}

// begin takes an id for a shell that is being opened. One that has ended is forgotten
// for it: the one of that id, or the oldest where there are too many.
func (s *shells) begin(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.known[id]; ok && !old.ended() {
		return fail(kindConflict, "shell %s is open: close it first, or take another id", id)
	}
	if _, again := s.known[id]; !again && len(s.known) >= maxShells && !s.forgetLocked() {
		return fail(kindExhausted, "%d shells are open, and no more can be: close one", maxShells)
	}
	if s.known == nil {
		s.known = map[string]*shell{}
	}
	s.known[id] = &shell{id: id}
	return nil
}

// forgetLocked forgets the shell that was started first of those that have ended.
func (s *shells) forgetLocked() bool {
	var oldest *shell
	for _, sh := range s.known {
		if sh.ended() && (oldest == nil || sh.cmd.Started().Before(oldest.cmd.Started())) {
			oldest = sh
		}
	}
	if oldest != nil {
		delete(s.known, oldest.id)
	}
	return oldest != nil
}

// opened says what became of an id that begin took: nil is nothing.
func (s *shells) opened(id string, sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh == nil {
		delete(s.known, id)
		return
	}
	s.known[id] = sh
}

// forget makes the id of a shell free, unless it is another's by now.
func (s *shells) forget(sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[sh.id] == sh {
		delete(s.known, sh.id)
	}
}

func (s *shells) get(id string) (*shell, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, ok := s.known[id]
	if !ok || sh.cmd == nil {
		return nil, fail(kindNotFound, "there is no shell %.64q", id)
	}
	return sh, nil
}

// list returns all, by their ids.
func (s *shells) list() []action.Shell {
	s.mu.Lock()
	var all []*shell
	for _, sh := range s.known {
		if sh.cmd != nil {
			all = append(all, sh)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *shell) int { return cmp.Compare(a.id, b.id) })
	out := make([]action.Shell, len(all))
	for i, sh := range all {
		out[i] = sh.state()
	}
	return out
}

// pace is how long things may take, which tests have shorter.
type pace struct {
	header time.Duration // for a request to come
	write  time.Duration // for a shell to take what is typed
	grace  time.Duration // between the signals that end a service
	again  time.Duration // before the first restart; each waits twice as long
}

var usual = pace{header: 10 * time.Second, write: 10 * time.Second, grace: 5 * time.Second, again: 500 * time.Millisecond}

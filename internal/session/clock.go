package session

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// The clock of a machine may be set: by hand, or by a time service. What is
// remembered of sessions are its times, which outlive the daemon; but nothing may
// be ended for such a jump, least of all what sleeps and has files. So times are
// moved along with the clock when it is set, and no time passes for sleepers
// while there is no daemon.
const (
	leastJump  = 2 * time.Second // less is the drift of two clocks
	seenEvery  = time.Hour
	seenFile   = "seen" // in Options.ProcessDir: when the daemon ran last
	seenLength = 32     // bytes of that, at most
)

// seen writes down now and then that there is a daemon, for the next one to know
// how long there was none.
type seen struct {
	dir   string // "": nothing is written down
	clock sandbox.Clock
	watch sandbox.Stopwatch
	log   *slog.Logger

	mu   sync.Mutex
	last time.Duration // when it was written, in time that passes; 0: never
}

// followLocked moves what is remembered when the clock was set forward, and
// returns who sleeps, which has to be written down. When it was set back, times
// that have yet to come are taken for now where they are looked at.
func (r *Runtime) followLocked() (asleep []*session) {
	ahead := r.seen.watch.Ahead()
	jump := ahead - r.ahead
	r.ahead = ahead
	if jump.Abs() < leastJump {
		return nil
	}
	r.log.Warn("the machine's clock was set", "by", jump)
	if jump < 0 {
		return nil
	}
	now := r.now()
	move := func(t *time.Time) {
		if t.IsZero() {
			return
		}
		if *t = t.Add(jump); t.After(now) { // it is of after the jump
			*t = now
		}
	}
	for _, s := range r.sessions {
		move(&s.used)
		move(&s.retry)
		for _, m := range s.procs {
			move(&m.ended)
		}
		if s.state.sleeps() {
			move(&s.rec.SleptAt)
			asleep = append(asleep, s)
		}
	}
	return asleep
}

// follow is followLocked, and writes down what it moved.
func (r *Runtime) follow(ctx context.Context) {
	r.mu.Lock()
	asleep := r.followLocked()
	r.mu.Unlock()
	for _, s := range asleep {
		if err := r.amend(ctx, s, func(*record.Session) {}); err != nil {
			r.log.Warn("write for how long a session sleeps", "session", shown(s.id.key), "error", err)
		}
	}
}

// away is how long there was no daemon; unknown: since then.
func (s *seen) away(now time.Time) time.Duration {
	if s.dir == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(s.dir, seenFile))
	if err == nil && len(text) <= seenLength {
		var sec int64
		if sec, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			return max(0, now.Sub(time.Unix(sec, 0)))
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("read when the daemon ran last", "error", err)
	}
	return unknown
}

// unknown is longer than anything sleeps.
const unknown = 1 << 62 * time.Nanosecond

// rest moves the time at which a session fell asleep, so that it has slept only
// while there was a daemon, and writes that down.
func (r *Runtime) rest(ctx context.Context, rec *record.Session, away time.Duration) {
	if rec.State != record.Asleep || away <= 0 {
		return
	}
	now := r.now()
	if since := now.Sub(rec.SleptAt); since <= away {
		rec.SleptAt = now
	} else {
		rec.SleptAt = rec.SleptAt.Add(away)
	}
	if err := r.o.Store.SaveSession(ctx, *rec); err != nil {
		r.log.Warn("write for how long a session sleeps", "session", shown(rec.Key), "error", err)
	}
}

// note writes down, now and then, that there is a daemon. What can't be written
// has sessions sleep for longer.
func (s *seen) note(last bool) {
	if s.dir == "" {
		return
	}
	s.mu.Lock()
	passed := s.watch.Passed()
	due := last || s.last == 0 || passed-s.last >= seenEvery
	if due {
		s.last = max(passed, 1)
	}
	s.mu.Unlock()
	if !due {
		return
	}
	// In place: it is one block, and takes no more room once it is there.
	f, err := os.OpenFile(filepath.Join(s.dir, seenFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.FormatInt(s.clock.Now().Unix(), 10)+"\n"), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.log.Warn("write down when the daemon ran last", "error", err)
	}
}

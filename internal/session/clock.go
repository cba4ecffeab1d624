package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// The clock of a machine may be set: by hand, or by whoever corrects it. What is
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

// setting is how far the clock's time is from the one that passes.
type setting struct {
	watch sandbox.Stopwatch
	ahead time.Duration
	seen  time.Duration // when seenFile was written last, in time that passes; 0: never
}

// followLocked moves what is remembered when the clock was set forward, and
// returns who sleeps, which has to be written down. When it was set back, times
// that have yet to come are taken for now where they are looked at.
func (r *Runtime) followLocked() (asleep []*session) {
	ahead := r.set.watch.Ahead()
	jump := ahead - r.set.ahead
	r.set.ahead = ahead
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

// awayFor is how long there was no daemon; unknown: since then.
func (r *Runtime) awayFor(now time.Time) time.Duration {
	if r.o.ProcessDir == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(r.o.ProcessDir, seenFile))
	if err == nil && len(text) <= seenLength {
		var sec int64
		if sec, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			return max(0, now.Sub(time.Unix(sec, 0)))
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("read when the daemon ran last", "error", err)
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

// saw writes down, now and then, that there is a daemon. What can't be written
// has sessions sleep for longer.
func (r *Runtime) saw(last bool) {
	if r.o.ProcessDir == "" {
		return
	}
	r.mu.Lock()
	passed := r.set.watch.Passed()
	due := last || r.set.seen == 0 || passed-r.set.seen >= seenEvery
	if due {
		r.set.seen = max(passed, 1)
	}
	r.mu.Unlock()
	if !due {
		return
	}
	// In place: it is one block, and takes no more room once it is there.
	f, err := os.OpenFile(filepath.Join(r.o.ProcessDir, seenFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.FormatInt(r.now().Unix(), 10)+"\n"), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		r.log.Warn("write down when the daemon ran last", "error", err)
	}
}

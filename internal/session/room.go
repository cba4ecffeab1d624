package session

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// A sandbox's files are on a disk image of the daemon's that takes room as it is
// written to. What the kernel has not written there when the disk becomes full is
// lost as soon as it is read from there again: when the sandbox was stopped.
const (
	lowRoom     = 256 << 20 // below this, what a command wrote is written out at its end
	noRoom      = 4 << 20   // below this, it may be lost
	syncTimeout = 10 * time.Second
)

// diskRoom is how much may be written to the daemon's disk.
type diskRoom struct {
	free func() uint64 // nil: there is enough
	log  *slog.Logger
	full atomic.Bool // as maySleep found it
}

// left is in bytes.
func (d *diskRoom) left() uint64 {
	if d.free == nil {
		return lowRoom
	}
	return d.free()
}

// maySleep reports whether there is room to put sessions to sleep. It is asked for
// each idle one every few seconds, and says in the log when that changes: what is
// logged may be on the same disk.
func (d *diskRoom) maySleep() bool {
	full := d.left() < noRoom
	if d.full.Swap(full) != full {
		d.log.Warn("sessions are put to sleep, unless their disk is full", "full", full)
	}
	return !full
}

// writeOut sees that what a command wrote stays, where others may soon have used
// up the disk, and says so where they have.
func (x *execution) writeOut(ctx context.Context, s *session) {
	room := x.r.room.left()
	if room >= lowRoom || x.r.record(s).Workspace.Kind != record.Private {
		return
	}
	if room < noRoom {
		x.f.say("the disk that session %s is on is full: what was written may be lost when the session sleeps; free some space there", shown(s.id.key))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	_, err := x.r.guest(s).Exec(ctx, &guestv1.Command{
		Argv: []string{"/bin/sync"}, Cwd: "/", TimeoutMs: uint64(syncTimeout.Milliseconds()), OrphanGraceMs: 1000,
	}, nil, agent.Keep{})
	if err != nil {
		x.r.log.Warn("write out what a command wrote", "session", shown(s.id.key), "error", err)
	}
}

package escape

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// What an attack on the control directory can come to.
const (
	pastDisk = "bytes past the disk"
	written  = "a host's file overwritten"
	believed = "a forged agent believed"
)

// attackCase is a binary, and what is to come of the attack on it.
type attackCase struct {
	wall, user string
	weaken     []weak.Weakness
	comes      []string
}

// attackCases are the unweakened binary behind each wall as each user, each of
// the four parts of the defence missing alone, and together.
func attackCases() []attackCase {
	const (
		shared   = weak.ControlShared
		mounts   = weak.MountAllowed
		names    = weak.NamesFollowed
		unproved = weak.PeerUnproved
	)
	root := func(comes []string, weaken ...weak.Weakness) attackCase {
		return attackCase{gvisor, "root", weaken, comes}
	}
	return []attackCase{
		{wall: gvisor, user: "user"},
		{wall: gvisor, user: "root"},
		{wall: process, user: "user"},
		root(nil, shared),
		root(nil, mounts),
		root(nil, names),
		root(nil, unproved),
		root(nil, mounts, names, unproved),
		root(nil, shared, names, unproved),
		root([]string{pastDisk}, shared, mounts, unproved),
		root([]string{pastDisk, written}, shared, mounts, names),
		root([]string{pastDisk, written, believed}, shared, mounts, names, unproved),
	}
}

func (c attackCase) name() string {
	seeds := joined(c.weaken, "+")
	if seeds == "" {
		seeds = "none"
	}
	return seeds + "/" + c.wall + "/" + c.user
}

// TestControlDirectoryIsOutOfReach lays mounts over the tree that a wall's file
// server shows, so that what the box's own mounts cover is seen, and puts
// links and a flood there. The host has the names of the agent's socket and,
// where that is seeded, a copy of its configuration in that directory. What
// must be missing for each part to succeed, of four that hold:
//
//	part                       | control-shared mount-allowed names-followed peer-unproved
//	bytes past the disk        | missing        missing
//	a host's file overwritten  | missing        missing       missing
//	a forged agent believed    | missing        missing       missing        missing
//
// A forged agent needs a datagram socket on the host. gVisor's programs can't
// have one: it gives names on the host to sockets with connections alone, and
// the host sends to no such socket. So the guest's link leads to a socket that
// an accomplice has, a program of the host's: no box behind the process wall has
// a socket in a directory of the host's.
func TestControlDirectoryIsOutOfReach(t *testing.T) {
	for _, c := range attackCases() {
		if !slices.Contains(walls(), c.wall) {
			continue
		}
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			bin := binary(t)
			if len(c.weaken) > 0 {
				bin = weakened(t)
			}
			w := newWorld(t, setting{bin: bin, wall: c.wall, user: c.user, weaken: c.weaken, alone: true, flags: []string{"--disk", "64m"}})
			came := w.attacked()
			for part, how := range came {
				if !slices.Contains(c.comes, part) {
					t.Errorf(finding+"%s: %s", part, how)
				}
			}
			if got := slices.Sorted(maps.Keys(came)); !slices.Equal(got, slices.Sorted(slices.Values(c.comes))) {
				t.Errorf("it came to %v; want %q", came, c.comes)
			}
		})
	}
}

// attacked attacks the control directory of the world's box. It returns the
// parts that succeeded, with what shows that.
func (w *world) attacked() map[string]string {
	w.t.Helper()
	came := map[string]string{}
	socket, heard := w.accomplice()
	before := w.usage()
	r := w.run(nil, "exec", "--timeout", "60s", w.box, "--", facts.Tools+"/probe", "attack", w.path("outside/file"), socket)
	var a facts.Attack
	if err := json.Unmarshal([]byte(r.stdout), &a); err != nil {
		w.t.Fatalf("the attack: %v: %+v", err, r)
	}
	w.t.Logf("by %s in %s: links %q, %d MiB; %s", a.How, a.Dir, a.Links, a.Written>>20, strings.Join(a.Notes, "; "))
	const noise = 16 << 20 // of logs and records
	if grown := w.usage() - before; grown > noise {
		came[pastDisk] = fmt.Sprintf("the state takes up %d bytes more", grown)
	}
	answer := w.called()
	w.t.Logf("a command then: %q; the forger heard %.300q", answer, heard())
	said := func(l string) bool { return strings.HasPrefix(l, "believed:") }
	if strings.Contains(answer, facts.Forged) || slices.ContainsFunc(heard(), said) {
		came[believed] = answer
	}
	w.whole(answer == "", "the box is lost: %s", answer)
	stop, start := w.run(nil, "stop", w.box), w.run(nil, "start", w.box)
	w.t.Logf("stop: %+v, start: %+v", stop, start)
	w.whole(stop.code+start.code == 0, "stop and start")
	if list := changed(w.before["outside"], snapshot(w.path("outside"))); len(list) > 0 {
		came[written] = strings.Join(list, "; ")
	}
	return came
}

// called runs commands that wait, until the host has no connection to the agent
// left and needs another. It returns what went wrong with one.
func (w *world) called() string {
	w.t.Helper()
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), patience.For(10*time.Second))
		cmd := exec.CommandContext(ctx, w.bin, "exec", "-i", w.box, "--", facts.Tools+"/probe", "hold")
		cmd.Env, cmd.Dir, cmd.WaitDelay = w.env, w.dir, time.Second
		var errs bytes.Buffer
		cmd.Stderr = &errs
		in, out := w.piped(cmd)
		end := sync.OnceFunc(func() { _, _ = in.Close(), cmd.Wait(); cancel() })
		if line, _ := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, "ready") {
			late := ctx.Err()
			end()
			return strings.TrimSpace(fmt.Sprintln(line+errs.String(), late))
		}
		defer end()
	}
	return ""
}

// piped starts a command with both ends in hand.
func (w *world) piped(cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	w.t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return in, out
}

// accomplice has a program that waits, at the socket whose name it returns, for
// a connection that is meant for an agent.
func (w *world) accomplice() (socket string, heard func() []string) {
	w.t.Helper()
	const name = "forger.sock"
	cmd := exec.Command(w.path(dirTools+"/probe"), "forge", w.path(dirWritable+"/"+name))
	cmd.Env, cmd.Dir = w.env, w.dir
	in, out := w.piped(cmd)
	w.t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		w.t.Fatalf("the forger: %q, %v", lines.Text(), lines.Err())
	}
	var mu sync.Mutex
	var list []string
	go func() {
		for lines.Scan() {
			mu.Lock()
			list = append(list, lines.Text())
			mu.Unlock()
		}
	}()
	return w.path(dirWritable + "/" + name), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

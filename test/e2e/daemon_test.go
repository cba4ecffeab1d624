package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func TestDaemonDiesDuringExec(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := h.command(ctx, "exec", name, "--", "sh", "-c", "for i in $(seq 20); do echo $i; sleep 0.2; done")
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(&got, lines.Text())
		if n := lines.Text(); n == "3" || n == "9" {
			h.killDaemon()
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("carboy exec: %v\n%s", err, errb.String())
	}
	var want strings.Builder
	for i := range 20 {
		fmt.Fprintln(&want, i+1)
	}
	if got.String() != want.String() {
		t.Errorf("got %q\nstderr: %s", got.String(), errb.String())
	}
}

// Much output, a gigabyte in make test-long, through a reader that is slower than the
// command, over two deaths of the daemon: every byte once, in order.
func TestMuchOutput(t *testing.T) {
	size := long.Rounds(int64(64<<20), 1<<30)
	h := newHome(t)
	name := h.create()
	cmd := h.command(t.Context(), "exec", name, "--", "python3", "-c",
		fmt.Sprintf("import sys\nfor i in range(%d): sys.stdout.buffer.write(i.to_bytes(8, 'little') * 512)", size/4096))
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(out, 1<<20)
	block := make([]byte, 4096)
	for i := range size / 4096 {
		if _, err := io.ReadFull(r, block); err != nil {
			t.Fatalf("block %d: %v\n%s", i, err, errb.String())
		}
		for o := 0; o < len(block); o += 8 {
			if got := binary.LittleEndian.Uint64(block[o:]); got != uint64(i) {
				t.Fatalf("block %d, byte %d: %d\n%s", i, o, got, errb.String())
			}
		}
		if i == size/4096/3 || i == size/4096/2 {
			h.killDaemon()
		}
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("%d bytes too many, %v", len(rest), err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("carboy exec: %v\n%s", err, errb.String())
	}
}

func TestSandboxOutlivesDaemon(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	h.ok("exec", "--detach", name, "--", "sh", "-c", "echo $$ > /tmp/pid; exec sleep 1000")
	h.killDaemon()
	if got := h.ok("exec", name, "--", "sh", "-c", "kill -0 $(cat /tmp/pid) && echo lives"); got != "lives\n" {
		t.Errorf("after the daemon's death: %q", got)
	}
}

func TestStopKeepsWork(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	h.ok("exec", name, "--", "sh", "-c", "echo one > /workspace/f; echo two > ~/g")
	h.ok("stop", name)
	r := h.run(nil, "exec", name, "--", "true")
	if r.code != 125 || !strings.Contains(r.stderr, "carboy start "+name) {
		t.Errorf("exec in a stopped sandbox: %+v", r)
	}
	h.ok("start", name)
	if got := h.ok("exec", name, "--", "sh", "-c", "cat /workspace/f ~/g"); got != "one\ntwo\n" {
		t.Errorf("after stop and start: %q", got)
	}
}

func TestCyclesLeaveNothing(t *testing.T) {
	n := long.Rounds(8, 50)
	h := newHome(t)
	name := h.create()
	cycles := func(n int) {
		for i := range n {
			c := h.create("--name", fmt.Sprintf("cycle-%d", i))
			h.ok("exec", c, "--", "true")
			h.ok("rm", "-f", c)
		}
	}
	cycles(5) // warm
	before := h.counts()
	cycles(n)
	after := h.settled(before) // a daemon closes what its last callers used when it gets to run
	for what, b := range before {
		if after[what] > b {
			t.Errorf("%s: %d before, %d after %d cycles", what, b, after[what], n)
		}
	}
	h.ok("exec", name, "--", "true")
}

// A daemon that was stopped has left, with all that it kept warm, by the time
// that the command returns, however far it had got with it.
func TestStopEndsThePool(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	config := filepath.Join(h.dir, "config", "carboy")
	if err := errors.Join(os.MkdirAll(config, 0o700), os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"pool": 2}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	ready := 0
	for want := range 3 {
		h.ok("ls") // starts one, whose first box is about to be made
		patience.Until(20*time.Second, func() bool {
			var st api.Status
			if ready < want {
				if err := json.Unmarshal([]byte(h.ok("daemon", "status", "--json")), &st); err != nil {
					t.Fatal(err)
				}
				ready = st.PoolReady
			}
			return ready >= want
		})
		h.ok("daemon", "stop")
		if boxes, _ := filepath.Glob(h.dir + "/state/carboy/boxes/*/*"); len(boxes) > 0 {
			t.Errorf("with %d boxes ready: %d directories are left", ready, len(boxes))
		}
	}
	if ready == 0 {
		t.Error("nothing was ever warm: the test sees nothing")
	}
}

// TestReplacedBinary has another program take the place of the daemon's while
// it runs, as an upgrade does: sandboxes start from the one that it is.
func TestReplacedBinary(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		exe := filepath.Join(t.TempDir(), "carboy")
		must(t, copyFile(exe, carboy, 0o755))
		installed := h.command(t.Context(), "ls")
		installed.Path = exe
		if out, err := installed.CombinedOutput(); err != nil { // it starts the daemon
			t.Fatalf("%v: %s", err, out)
		}
		must(t, os.Remove(exe))
		must(t, os.WriteFile(exe, []byte("#!/bin/sh\nexit 1\n"), 0o755))
		h.ok("create", "--isolation", wall, "--name", "after")
		if got := h.ok("exec", "after", "--", "echo", "works"); got != "works\n" {
			t.Errorf("it says %q", got)
		}
	})
}

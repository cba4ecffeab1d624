package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/carboy-sandbox/carboy/api"
)

// writer is a program that writes numbered blocks to a sandbox's disk, each synced before
// it says its number.
type writer struct {
	cmd   *exec.Cmd
	acked atomic.Int64 // the highest number that it said
	done  chan struct{}
	said  bytes.Buffer // on stderr; read it once done is closed
}

// blockText is what block n holds.
func blockText(n int64) []byte {
	line := fmt.Appendf(nil, "block %d of many\n", n)
	return bytes.Repeat(line, blockBytes/len(line)+1)[:blockBytes]
}

// writeBlocks starts a writer in a sandbox. A file "enough" in its directory ends it.
func (h *home) writeBlocks(name string) *writer {
	h.t.Helper()
	script := fmt.Sprintf(`mkdir -p b; i=0
		while [ ! -e enough ]; do
			yes "block $i of many" | head -c %d | dd of=b/$i bs=256k iflag=fullblock conv=fsync status=none || { echo broken at $i >&2; exit 9; }
			echo $i; i=$((i+1))
		done`, blockBytes)
	w := &writer{done: make(chan struct{})}
	w.cmd = h.command(context.Background(), "exec", name, "--", "sh", "-c", script)
	w.cmd.Stderr = &w.said
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	w.acked.Store(-1)
	go func() {
		defer close(w.done)
		for in := bufio.NewScanner(out); in.Scan(); {
			if n, err := strconv.ParseInt(in.Text(), 10, 64); err == nil {
				w.acked.Store(n)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = w.cmd.Wait()
	}()
	return w
}

// end has a writer stop after its next block.
func (w *writer) end(h *home, name string) {
	h.t.Helper()
	h.ok("exec", name, "--", "touch", "enough")
	<-w.done
	if strings.Contains(w.said.String(), "broken") {
		h.t.Errorf("the writer failed: %s", w.said.String())
	}
}

// wrong compares all blocks that were acknowledged with what the sandbox has.
func (h *home) wrong(name string, upTo int64) string {
	h.t.Helper()
	cmd := h.command(h.t.Context(), "exec", name, "--", "sh", "-c", fmt.Sprintf("i=0; while [ $i -le %d ]; do cat b/$i || exit 1; i=$((i+1)); done", upTo))
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err.Error()
	}
	defer cmd.Wait()
	got := make([]byte, blockBytes)
	for n := int64(0); n <= upTo; n++ {
		if _, err := io.ReadFull(out, got); err != nil {
			return fmt.Sprintf("block %d: %v", n, err)
		}
		if !bytes.Equal(got, blockText(n)) {
			return fmt.Sprintf("block %d holds something else: %.40q", n, got)
		}
	}
	return ""
}

// heldBy returns what a sandbox is held by, or nil.
func (h *home) heldBy(name string) *api.DiskHeld {
	h.t.Helper()
	var out []api.Sandbox
	if err := json.Unmarshal([]byte(h.ok("inspect", "--json", name)), &out); err != nil || len(out) != 1 {
		var one api.Sandbox
		if err := json.Unmarshal([]byte(h.ok("inspect", "--json", name)), &one); err != nil {
			h.t.Fatal(err)
		}
		return one.Held
	}
	return out[0].Held
}

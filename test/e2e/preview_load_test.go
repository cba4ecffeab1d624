package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
)

// streamServer sends a word to each stream, another to all at /go, and without
// end at /flood.
const streamServer = `
import asyncio
streams = []
def answer(w):
    w.write(b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n')
async def one(r, w):
    head = await r.readuntil(b'\r\n\r\n')
    answer(w)
    if head.startswith(b'GET /flood'):
        while True:
            w.write(b'10000\r\n' + b'x' * 65536 + b'\r\n')
            await w.drain()
    if head.startswith(b'GET /go'):
        for s in streams: s.write(b'3\r\ntwo\r\n')
        w.write(b'0\r\n\r\n')
        return await w.drain()
    streams.append(w)
    w.write(b'3\r\none\r\n')
    await w.drain()
    await asyncio.Event().wait()
async def main():
    server = await asyncio.start_server(one, '127.0.0.1', 8000, backlog=4096)
    await server.serve_forever()
asyncio.run(main())
`

// TestPreviewStreams: many streams that wait cost little and get what comes,
// one that is not read costs nothing more, and all of them see the end of
// their sandbox as an error.
func TestPreviewStreams(t *testing.T) {
	streams := long.Rounds(200, 1000)
	const allowed = 128 << 10 // of the daemon's memory, for each
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall)
		id := h.id(name)
		h.ok("exec", "-d", name, "--", "python3", "-c", streamServer)
		get := h.previews(t, id, "8000")
		until(t, func() bool {
			body, err := get(t.Context(), "/go")
			if err == nil {
				body.Close()
			}
			return err == nil
		})
		box, daemon := inside(id), []int{h.daemonPID()}
		before := [2]int{rss(daemon), rss(box)}
		bodies := make([]io.ReadCloser, streams)
		all := &manyStreams{t: t, bodies: bodies}
		all.each("open", func(i int) (err error) {
			if bodies[i], err = get(t.Context(), "/"); err == nil {
				err = all.word(i, "one")
			}
			return err
		})
		after := [2]int{rss(daemon), rss(box)}
		t.Logf("%s: for each of %d streams: %d KiB in the daemon, %d KiB in the sandbox", wall, streams,
			(after[0]-before[0])/streams>>10, (after[1]-before[1])/streams>>10)
		if grown := after[0] - before[0]; grown > streams*allowed+16<<20 {
			t.Errorf("the daemon grew by %d MiB", grown>>20)
		}

		defer flooded(t, get, append(daemon, box...)).Close()
		if body, err := get(t.Context(), "/go"); err != nil {
			t.Error(err)
		} else {
			body.Close()
		}
		all.each("go", func(i int) error { return all.word(i, "two") })

		for _, pid := range inside(id) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		all.each("the sandbox's end", func(i int) error {
			if n, err := io.Copy(io.Discard, bodies[i]); err == nil {
				return &unexpected{"its end looks like an answer's", nil}
			} else if n > 0 {
				return &unexpected{"more came", err}
			}
			return bodies[i].Close()
		})
		until(t, func() bool { return h.run(nil, "exec", name, "--", "true").code == 0 })
	})
}

// manyStreams are answers that are read at once.
type manyStreams struct {
	t      *testing.T
	bodies []io.ReadCloser
}

// each does something with all of them, and ends the test where one fails.
func (m *manyStreams) each(what string, do func(i int) error) {
	m.t.Helper()
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range m.bodies {
		wg.Go(func() {
			if err := do(i); err != nil && failed.Add(1) == 1 {
				m.t.Errorf("%s: stream %d: %v", what, i, err)
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		m.t.Fatalf("%s: %d of %d streams failed", what, n, len(m.bodies))
	}
}

// word wants the next word of one.
func (m *manyStreams) word(i int, want string) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(m.bodies[i], got); err != nil || string(got) != want {
		return &unexpected{string(got), err}
	}
	return nil
}

// flooded reads a little of an answer without end, then nothing, and wants the
// memory of processes to stay as it is.
func flooded(t *testing.T, get func(context.Context, string) (io.ReadCloser, error), pids []int) io.ReadCloser {
	t.Helper()
	flood, err := get(t.Context(), "/flood")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(flood, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	held := rss(pids)
	<-time.After(2 * time.Second) // nobody reads
	if grown := rss(pids) - held; grown > 32<<20 {
		t.Errorf("what is not read grew to %d MiB", grown>>20)
	}
	return flood
}

// unexpected is what a stream had instead of what it should.
type unexpected struct {
	got string
	err error
}

func (u *unexpected) Error() string {
	if u.err != nil {
		return "got " + u.got + ": " + u.err.Error()
	}
	return "got " + u.got
}

// previews returns what asks a port of a sandbox, as its owner.
func (h *home) previews(t *testing.T, id, port string) func(ctx context.Context, path string) (io.ReadCloser, error) {
	sockets, err := filepath.Glob(h.dir + "/run/carboy/*.sock")
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets = %v, %v; want the daemon's", sockets, err)
	}
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", sockets[0])
	}}
	return func(ctx context.Context, path string) (io.ReadCloser, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://carboy"+path, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("E2b-Sandbox-Id", id)
		req.Header.Set("E2b-Sandbox-Port", port)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			var text strings.Builder
			_, _ = io.Copy(&text, io.LimitReader(resp.Body, 1<<10))
			resp.Body.Close()
			return nil, &unexpected{resp.Status + " " + text.String(), nil}
		}
		return resp.Body, nil
	}
}

package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// 2,000 connections that ask for one of each kind are bounded, and the rest told
// so; 2,000 that say nothing, or a byte a second, are closed; meanwhile who was
// there before has its answers.
func TestBoxCrowd(t *testing.T) {
	h := newHome(t)
	addr := h.boxServe("process", nil)
	c := boxClient(t, addr)
	spec := boxservice.NewSpec("s", "")
	sh(t, c, spec, "true")
	if _, err := c.StartProcess(t.Context(), "s", boxservice.ProcessSpec{Command: "cat"}); err != nil {
		t.Fatal(err)
	}
	pid := []int{h.daemonPID()}
	before := rss(pid)
	answers := func(what string) {
		t.Helper()
		if got := sh(t, c, spec, "echo here"); got != "here\n" {
			t.Errorf("%s: it has %q", what, got)
		}
	}
	const crowd = 1000
	for path, most := range map[string]int{"/rpc/ws": 32 - 1, "/v1/sessions/s/managed-process/ws": 256} {
		open, refused := connectMany(t, "ws://"+addr+path, crowd)
		t.Logf("%s: %d of %d are open, %d told that there are too many; the daemon has %d KiB more", path, len(open), crowd, refused, (rss(pid)-before)>>10)
		if len(open) == 0 || len(open) > most || len(open)+refused != crowd {
			t.Errorf("%s: %d are open and %d were told why not, of %d", path, len(open), refused, crowd)
		}
		answers(path)
		for _, ws := range open {
			_ = ws.CloseNow() // as one that vanishes
		}
		until(t, func() bool { // they make room
			ws, _, err := websocket.Dial(t.Context(), "ws://"+addr+path, nil)
			if err == nil {
				_ = ws.CloseNow()
			}
			return err == nil
		})
	}
	if !long.On() {
		return // what follows is for as long as they may be silent
	}
	silent := dialMany(t, addr, 2*crowd)
	slow := dialMany(t, addr, 8)
	answers("2000 that say nothing")
	t.Logf("2000 that say nothing: the daemon has %d KiB more", (rss(pid)-before)>>10)
	begun := time.Now()
	for closed := 0; closed < len(slow); { // a byte a second
		<-time.After(time.Second)
		closed = 0
		for _, conn := range slow {
			if _, err := conn.Write([]byte("G")); err != nil {
				closed++
			}
		}
		if took := time.Since(begun); took > patience.For(50*time.Second) { // five times as long as they may take
			t.Fatalf("%d of %d that send a byte a second are open after %v", len(slow)-closed, len(slow), took)
		}
	}
	for _, conn := range silent {
		_ = conn.SetReadDeadline(time.Now().Add(patience.For(20 * time.Second)))
		if _, err := conn.Read(make([]byte, 1)); os.IsTimeout(err) {
			t.Fatal("one that says nothing is still open")
		}
	}
	answers("afterwards")
}

// connectMany opens as many WebSockets as it may have of n.
func connectMany(t *testing.T, url string, n int) (open []*websocket.Conn, refused int) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	for range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ws, resp, err := websocket.Dial(t.Context(), url, nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				open = append(open, ws)
			case resp != nil && resp.StatusCode == http.StatusServiceUnavailable:
				refused++
			default:
				t.Errorf("connect: %v", err)
			}
		})
	}
	all.Wait()
	return open, refused
}

func dialMany(t *testing.T, addr string, n int) (all []net.Conn) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("after %d: %v", len(all), err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		all = append(all, conn)
	}
	return all
}

// A client that vanishes in the middle of an upload, of many, leaves nothing of
// them, and takes nothing from others.
func TestBoxUploadsVanish(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	addr := h.boxServe("process", nil)
	c := boxClient(t, addr)
	pack := bigZip(t)
	pid := []int{h.daemonPID()}
	before := rss(pid)
	for n := range 12 {
		gone, err := boxservice.NewConnector(boxservice.Options{Endpoint: "ws://" + addr})
		if err != nil {
			t.Fatal(err)
		}
		if err := gone.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = gone.Client().PreviewZip(ctx, pack)
		}()
		<-time.After(time.Duration(n) * 5 * time.Millisecond)
		cancel()
		_ = gone.Close()
		<-done
	}
	if list, err := c.PreviewZip(t.Context(), pack); err != nil || len(list) != 1 {
		t.Errorf("another's upload: %v, %v", list, err)
	}
	until(t, func() bool {
		left, err := os.ReadDir(h.dir + "/state/carboy/box/skills/.carboy")
		return err == nil && len(left) == 1 // the lock
	})
	t.Logf("the daemon has %d KiB more", (rss(pid)-before)>>10)
	if _, err := c.CreateSkill(t.Context(), sessions.SkillInput{Name: "after"}); err != nil {
		t.Error(err)
	}
}

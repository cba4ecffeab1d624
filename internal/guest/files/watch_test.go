package files_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// short writes an event as "create name".
func short(e *filesystem.FilesystemEvent) string {
	kind := strings.ToLower(strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_"))
	return kind + " " + e.GetName()
}

// stream is a WatchDir whose start was seen.
type stream struct {
	t  *testing.T
	in *connect.ServerStreamForClient[filesystem.WatchDirResponse]
}

func (g *guest) watch(t *testing.T, req *filesystem.WatchDirRequest) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	in, err := g.fs.WatchDir(ctx, connect.NewRequest(req))
	must(t, err)
	if !in.Receive() || in.Msg().GetStart() == nil {
		t.Fatalf("no start: %v, %v", in.Msg(), in.Err())
	}
	return &stream{t, in}
}

// until returns the events up to the wanted one.
func (s *stream) until(want string) []string {
	s.t.Helper()
	var got []string
	for s.in.Receive() {
		if e := s.in.Msg().GetFilesystem(); e != nil {
			got = append(got, short(e))
			if short(e) == want {
				return got
			}
		}
	}
	s.t.Fatalf("no %q among %q: %v", want, got, s.in.Err())
	return nil
}

func TestWatchDir(t *testing.T) {
	g := newGuest(t)
	g.put("w/old", "1")
	g.put("w/sub/x", "1")
	s := g.watch(t, &filesystem.WatchDirRequest{Path: "w"})
	g.put("w/sub/unseen", "1") // not recursive
	g.put("w/new", "1")
	got := s.until("write new")
	if !slices.Contains(got, "create new") || slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, "unseen") }) {
		t.Errorf("events %q", got)
	}
	must(t, os.Chmod(g.path("w/old"), 0o600))
	s.until("chmod old")
	must(t, os.Rename(g.path("w/old"), g.path("w/older")))
	if got := s.until("create older"); !slices.Contains(got, "rename old") {
		t.Errorf("events of a rename: %q", got)
	}
	must(t, os.Remove(g.path("w/older")))
	s.until("remove older")
	must(t, os.WriteFile(g.path("w/bad\xff"), nil, 0o644))
	s.until("create bad\uFFFD")
}

func TestWatchDirRecursive(t *testing.T) {
	g := newGuest(t)
	g.put("w/a/b/x", "1")
	g.put("outside/y", "1")
	must(t, os.Mkdir(g.path("w/closed"), 0o700)) // the user can't look into it
	s := g.watch(t, &filesystem.WatchDirRequest{Path: "w", Recursive: true})
	g.put("w/a/b/x", "2")
	s.until("write a/b/x")
	// A tree that appears at once is seen whole, once.
	must(t, os.MkdirAll(g.path("w/n/e/w"), 0o755))
	must(t, os.WriteFile(g.path("w/n/e/w/f"), []byte("1"), 0o644))
	got := s.until("write n/e/w/f")
	for _, want := range []string{"create n", "create n/e", "create n/e/w", "create n/e/w/f"} {
		if n := count(got, want); n != 1 {
			t.Errorf("%d times %q in %q", n, want, got)
		}
	}
	// A directory keeps its watches under its new name.
	must(t, os.Rename(g.path("w/a"), g.path("w/moved")))
	s.until("create moved")
	g.put("w/moved/b/x", "3")
	s.until("write moved/b/x")
	// One that leaves is not watched any longer.
	must(t, os.Rename(g.path("w/moved"), g.path("gone")))
	s.until("rename moved")
	g.put("gone/b/x", "4")
	// One that comes in is.
	must(t, os.Rename(g.path("outside"), g.path("w/in")))
	s.until("create in")
	g.put("w/in/y", "2")
	got = s.until("write in/y")
	if slices.ContainsFunc(got, func(e string) bool { return strings.HasSuffix(e, "b/x") }) {
		t.Errorf("events of a directory that left: %q", got)
	}
	// Its name can be used again.
	must(t, os.RemoveAll(g.path("w/n")))
	s.until("remove n")
	must(t, os.MkdirAll(g.path("w/n/e"), 0o755))
	s.until("create n/e")
	g.put("w/n/e/again", "1")
	s.until("write n/e/again")
}

func count(list []string, s string) (n int) {
	for _, e := range list {
		if e == s {
			n++
		}
	}
	return n
}

func TestWatchDirEntries(t *testing.T) {
	g := newGuest(t)
	g.put("w/a", "1")
	s := g.watch(t, &filesystem.WatchDirRequest{Path: "w", IncludeEntry: true})
	g.put("w/a", "22")
	must(t, os.Remove(g.path("w/a")))
	g.put("w/b", "333")
	for s.in.Receive() {
		e := s.in.Msg().GetFilesystem()
		switch {
		case e.GetName() == "a" && e.GetType() == filesystem.EventType_EVENT_TYPE_REMOVE && e.GetEntry() != nil:
			t.Errorf("a removal has an entry: %v", e)
		case e.GetName() == "b" && e.GetType() == filesystem.EventType_EVENT_TYPE_WRITE:
			if got := e.GetEntry(); got.GetPath() != g.path("w/b") || got.GetSize() != 3 {
				t.Errorf("entry is %v", got)
			}
			return
		}
	}
	t.Error(s.in.Err())
}

func TestWatchDirRefuses(t *testing.T) {
	g := newGuest(t)
	g.put("file", "")
	must(t, os.Mkdir(g.path("closed"), 0o700))
	for p, want := range map[string]connect.Code{
		"missing": connect.CodeNotFound, "file": connect.CodeInvalidArgument, "closed": connect.CodePermissionDenied,
	} {
		in, err := g.fs.WatchDir(t.Context(), connect.NewRequest(&filesystem.WatchDirRequest{Path: p}))
		must(t, err)
		if in.Receive() {
			t.Errorf("%s is watched", p)
		}
		g.wantCode(in.Err(), want)
		_, err = g.fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: p}))
		g.wantCode(err, want)
	}
}

func TestWatchDirKeepAlive(t *testing.T) {
	g := newGuest(t)
	req := connect.NewRequest(&filesystem.WatchDirRequest{Path: "."})
	req.Header().Set("Keepalive-Ping-Interval", "1")
	in, err := g.fs.WatchDir(t.Context(), req)
	must(t, err)
	for in.Receive() {
		if in.Msg().GetKeepalive() != nil {
			must(t, in.Close())
			return
		}
	}
	t.Error(in.Err())
}

func TestWatchDirEndsWithService(t *testing.T) {
	g := newGuest(t)
	s := g.watch(t, &filesystem.WatchDirRequest{Path: "."})
	must(t, g.svc.Close())
	for s.in.Receive() {
	}
	g.wantCode(s.in.Err(), connect.CodeUnavailable)
	if users, _ := g.svc.Workers().Threads(); users != 0 {
		t.Errorf("%d users have threads after Close", users)
	}
}

func (g *guest) events(id string) ([]string, error) {
	resp, err := g.fs.GetWatcherEvents(g.t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
	if err != nil {
		return nil, err
	}
	var got []string
	for _, e := range resp.Msg.GetEvents() {
		got = append(got, short(e))
	}
	return got, nil
}

func TestWatcher(t *testing.T) {
	g := newGuest(t)
	resp, err := g.fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: ".", Recursive: true}))
	must(t, err)
	id := resp.Msg.GetWatcherId()
	g.put("d/f", "1")
	var got []string
	seen := patience.Until(20*time.Second, func() bool {
		more, err := g.events(id)
		must(t, err)
		got = append(got, more...)
		return slices.Contains(got, "write d/f")
	})
	if !seen {
		t.Fatalf("events %q", got)
	}
	if !slices.Contains(got, "create d") {
		t.Errorf("events %q", got)
	}
	remove := func() error {
		_, err := g.fs.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
		return err
	}
	must(t, remove())
	g.wantCode(remove(), connect.CodeNotFound)
	_, err = g.events(id)
	g.wantCode(err, connect.CodeNotFound)
}

// TestWatcherOverflow lets more happen than is kept: the watcher says so
// rather than skip some.
func TestWatcherOverflow(t *testing.T) {
	g := newGuest(t)
	resp, err := g.fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	must(t, err)
	must(t, os.WriteFile(g.path("f"), nil, 0o644))
	for i := range 10_000 {
		must(t, os.Rename(g.path("f"), g.path(fmt.Sprint("f", i))))
		must(t, os.Rename(g.path(fmt.Sprint("f", i)), g.path("f")))
	}
	patience.Until(20*time.Second, func() bool { _, err = g.events(resp.Msg.GetWatcherId()); return err != nil })
	g.wantCode(err, connect.CodeDataLoss)
}

func TestWatcherBound(t *testing.T) {
	g := newGuest(t)
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = g.fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	}
	g.wantCode(err, connect.CodeResourceExhausted)
	if n > 257 {
		t.Errorf("%d watchers were made", n)
	}
}

// TestWatchersShareOneInstance opens many watchers of the same and of nested
// directories: the host gives a user few inotify instances, so they have one
// between them, which is closed with the last. What one watches ends with it
// and leaves the others'.
func TestWatchersShareOneInstance(t *testing.T) {
	g := newGuest(t)
	before := instances(t)
	g.put("w/sub/x", "1")
	create := func(recursive bool) string {
		resp, err := g.fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "w", Recursive: recursive}))
		must(t, err)
		return resp.Msg.GetWatcherId()
	}
	var ids []string
	for i := range 60 {
		ids = append(ids, create(i%2 == 0))
	}
	last := g.watch(t, &filesystem.WatchDirRequest{Path: "w/sub"})
	if n := instances(t) - before; n != 1 {
		t.Errorf("%d inotify instances of 61 watchers", n)
	}
	g.put("w/y", "1")
	for _, id := range ids {
		g.sees(id, "write y")
	}
	for _, id := range ids {
		_, err := g.fs.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
		must(t, err)
	}
	g.put("w/sub/x", "2")
	last.until("write x")
	again := create(true)
	g.put("w/sub/z", "1")
	g.sees(again, "write sub/z")
	last.until("write z")
	must(t, g.svc.Close())
	if n := instances(t) - before; n != 0 {
		t.Errorf("%d inotify instances are left", n)
	}
}

// sees waits until a watcher has an event.
func (g *guest) sees(id, want string) {
	g.t.Helper()
	seen := patience.Until(20*time.Second, func() bool {
		got, err := g.events(id)
		must(g.t, err)
		return slices.Contains(got, want)
	})
	if !seen {
		g.t.Fatalf("watcher %s never had %q", id, want)
	}
}

// instances counts the inotify instances of this process.
func instances(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

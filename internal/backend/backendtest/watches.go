package backendtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func testWatches(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	t.Run("stream", func(t *testing.T) { watchStream(t, b) })
	t.Run("poll", func(t *testing.T) { watchPoll(t, b) })
	t.Run("refused", func(t *testing.T) {
		b.sh(t, "", "mkdir -m 0 "+closedDir)
		for path, code := range map[string]connect.Code{
			"/no/such": connect.CodeNotFound, "/etc/passwd": connect.CodeInvalidArgument, closedDir: connect.CodePermissionDenied,
		} {
			_, err := b.files.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: path}))
			wantCode(t, "a watch of "+path, err, code)
		}
		_, err := b.files.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: "nobody"}))
		wantCode(t, "an unknown watcher", err, connect.CodeNotFound)
	})
}

// steps are what is done to a watched directory, and what must be told of it
// at least.
var steps = []struct {
	script string
	name   string
	event  filesystem.EventType
}{
	{"echo x > f", "f", filesystem.EventType_EVENT_TYPE_CREATE},
	{"echo y >> f", "f", filesystem.EventType_EVENT_TYPE_WRITE},
	{"chmod 600 f", "f", filesystem.EventType_EVENT_TYPE_CHMOD},
	{"mkdir -p sub; echo x > sub/g", "sub", filesystem.EventType_EVENT_TYPE_CREATE},
	{"echo y > sub/h", "sub/h", filesystem.EventType_EVENT_TYPE_CREATE},
	{"mv f moved", "f", filesystem.EventType_EVENT_TYPE_RENAME},
	{"rm moved", "moved", filesystem.EventType_EVENT_TYPE_REMOVE},
}

func watchStream(t *testing.T, b *instance) {
	b.sh(t, "", "mkdir -p /workspace/watched")
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(time.Minute))
	defer cancel()
	stream, err := b.files.WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{Path: "/workspace/watched", Recursive: true}))
	must(t, err)
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("the first message: %v, %v", stream.Msg(), stream.Err())
	}
	for _, s := range steps {
		b.sh(t, "", "cd /workspace/watched; "+s.script)
		for seen := ""; ; seen += fmt.Sprintln(stream.Msg().GetFilesystem()) {
			if !stream.Receive() {
				t.Fatalf("%s: nothing of %v %s: %v\n%s", s.script, s.event, s.name, stream.Err(), seen)
			}
			if e := stream.Msg().GetFilesystem(); e.GetName() == s.name && e.GetType() == s.event {
				break
			}
		}
	}
}

func watchPoll(t *testing.T, b *instance) {
	b.sh(t, "", "mkdir -p /workspace/polled")
	w, err := b.files.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "/workspace/polled", Recursive: true}))
	must(t, err)
	id := w.Msg.GetWatcherId()
	for _, s := range steps {
		b.sh(t, "", "cd /workspace/polled; "+s.script)
		until(t, s.script, func() bool {
			res, err := b.files.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
			must(t, err)
			for _, e := range res.Msg.GetEvents() {
				if e.GetName() == s.name && e.GetType() == s.event {
					return true
				}
			}
			return false
		})
	}
	_, err = b.files.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
	must(t, err)
	_, err = b.files.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
	wantCode(t, "a watcher that is gone", err, connect.CodeNotFound)
}

package process_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	os.Exit(m.Run())
}

// world is an engine with its services behind a real server.
type world struct {
	t      testing.TB
	engine *process.Engine
	url    string
	exec   guestv1connect.ExecServiceClient
}

type setup struct {
	cgroups bool // else marks
	deny    bool // no root
	disks   []string
	hidden  []string // of the host's PATH
	counts  cgroup.Options
	tree    *cgroup.Hierarchy // in place of one in this machine's hierarchy
	jail    jail.Config
}

func open(t testing.TB, s setup) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	tree := s.tree
	if s.cgroups {
		tree = cgroups(t, s.counts)
	}
	s.jail.PIDNamespace, s.jail.Marked = true, tree == nil
	j, err := jail.Start(s.jail)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	e, err := process.New(process.Options{
		Spawner: j, Cgroups: tree, AllowRoot: !s.deny, DiskPaths: s.disks, NotShown: s.hidden,
		Lookup: func(name string) (account.Account, error) {
			switch name {
			case "user":
				return account.Account{Name: name, UID: 1000, GID: 1000, Home: "/tmp", Shell: "/bin/sh"}, nil
			case "root":
				return account.Account{Name: name, Home: "/", Shell: "/bin/sh"}, nil
			}
			return account.Account{}, errors.New("nobody knows them")
		},
		Defaults: func() process.Defaults {
			return process.Defaults{User: "user", Cwd: "/", Env: map[string]string{"FROM": "sandbox", "BOTH": "sandbox"}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	mux := http.NewServeMux()
	e.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return &world{t: t, engine: e, url: srv.URL, exec: guestv1connect.NewExecServiceClient(srv.Client(), srv.URL)}
}

// cgroups makes a tree in this machine's hierarchy.
func cgroups(t testing.TB, opts cgroup.Options) *cgroup.Hierarchy {
	t.Helper()
	root := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			root = dir
		}
	}
	if root == "" {
		t.Skip("no cgroup v2 here")
	}
	dir, err := os.MkdirTemp(root, "carboy-test-")
	if err != nil {
		t.Skip(err)
	}
	base, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	tree, err := cgroup.Prepare(base, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.Close()
		if err := os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			t.Error(err)
		}
		// A thread that was about to end is not moved, and gone in a moment.
		var err error
		patience.Until(10*time.Second, func() bool { err = unix.Rmdir(dir); return !errors.Is(err, unix.EBUSY) })
		if err != nil {
			t.Error(dir, err)
		}
	})
	return tree
}

// both runs a test with cgroups and with marks.
func both(t *testing.T, f func(t *testing.T, w *world)) {
	t.Run("cgroups", func(t *testing.T) { f(t, open(t, setup{cgroups: true})) })
	t.Run("marks", func(t *testing.T) { f(t, open(t, setup{})) })
}

// result is what a stream of events came to.
type result struct {
	pid            uint32
	stdout, stderr bytes.Buffer
	dropped        []*guestv1.Event_Dropped
	exit           *guestv1.Exit
}

// collect reads a stream to its end, or until enough says so.
func collect(t testing.TB, stream *connect.ServerStreamForClient[guestv1.Event], err error, enough func(*result) bool) (*result, error) {
	t.Helper()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	r := &result{}
	for stream.Receive() {
		if r.exit != nil {
			t.Errorf("after the exit: %v", stream.Msg())
		}
		switch ev := stream.Msg().GetEvent().(type) {
		case *guestv1.Event_Started_:
			r.pid = ev.Started.GetPid()
		case *guestv1.Event_Output_:
			to := &r.stdout
			if ev.Output.GetStream() == guestv1.Stream_STREAM_STDERR {
				to = &r.stderr
			}
			to.Write(ev.Output.GetData())
		case *guestv1.Event_Dropped_:
			r.dropped = append(r.dropped, ev.Dropped)
		case *guestv1.Event_Exit:
			r.exit = ev.Exit
		}
		if enough != nil && enough(r) {
			return r, nil
		}
	}
	if err := stream.Err(); err != nil {
		return r, err
	}
	if r.exit == nil {
		t.Error("the stream ended without an exit")
	}
	return r, nil
}

func (w *world) start(id string, c *guestv1.Command, enough func(*result) bool) (*result, error) {
	stream, err := w.exec.Start(w.t.Context(), connect.NewRequest(&guestv1.StartRequest{Id: id, Command: c}))
	return collect(w.t, stream, err, enough)
}

func (w *world) run(id string, c *guestv1.Command) *result {
	w.t.Helper()
	r, err := w.start(id, c, nil)
	if err != nil {
		w.t.Fatalf("%s: %v", id, err)
	}
	return r
}

func sh(script string) *guestv1.Command {
	return &guestv1.Command{Argv: []string{"sh", "-c", script}}
}

// until is enough once stdout holds a text.
func until(text string) func(*result) bool {
	return func(r *result) bool { return strings.Contains(r.stdout.String(), text) }
}

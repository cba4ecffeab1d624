package doctor_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fakeWall is a wall whose guest is in this process.
type fakeWall struct {
	name     string
	enforced []sandbox.Enforcement
	openErr  error
	startErr error
	panics   bool
	code     int32

	mu        sync.Mutex
	socket    net.Listener
	instances []string
	removed   []string
}

var _ doctor.Backend = (*fakeWall)(nil)

func (f *fakeWall) wall() doctor.Wall {
	return doctor.Wall{Name: f.name, Open: func(_ context.Context, state string) (doctor.Backend, error) {
		if f.openErr != nil {
			return nil, f.openErr
		}
		return f, os.MkdirAll(filepath.Join(state, "boxes"), 0o700)
	}}
}

func (f *fakeWall) Start(_ context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	if f.panics {
		panic("the wall's own fault")
	}
	if f.startErr != nil {
		return nil, f.startErr
	}
	ln, err := net.Listen("unix", "@"+sb.ID)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.socket = ln
	f.instances = append(f.instances, sb.ID)
	path, handler := guestv1connect.NewExecServiceHandler(fakeGuest{wall: f})
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	go func() { _ = (&http.Server{Handler: mux}).Serve(ln) }() // until its listener is closed
	return f.enforced, nil
}

// fakeGuest runs nothing.
type fakeGuest struct {
	guestv1connect.UnimplementedExecServiceHandler
	wall *fakeWall
}

func (g fakeGuest) Start(_ context.Context, req *connect.Request[guestv1.StartRequest], s *connect.ServerStream[guestv1.Event]) error {
	if argv := req.Msg.GetCommand().GetArgv(); !slices.Equal(argv, []string{"true"}) {
		return errors.New("not the command that was expected")
	}
	return s.Send(&guestv1.Event{Event: &guestv1.Event_Exit{Exit: &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED, Code: g.wall.code}}})
}

func (f *fakeWall) Stop(context.Context, string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.socket != nil {
		_ = f.socket.Close()
	}
	return nil, nil
}

func (f *fakeWall) Remove(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances = slices.DeleteFunc(f.instances, func(b string) bool { return b == id })
	f.removed = append(f.removed, id)
	return nil
}

func (f *fakeWall) Dial(ctx context.Context, id string, _ int) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", "@"+id)
}

func (f *fakeWall) Instances(context.Context) ([]string, error) {
	return slices.Clone(f.instances), nil
}

func (f *fakeWall) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Link: sandbox.LinkNetNS}
}

func (f *fakeWall) Close() error { return nil }

// anywhere is a place for whoever runs the tests.
func anywhere(t *testing.T) doctor.Options {
	dir := t.TempDir()
	return doctor.Options{
		Version: "v1", Home: dir, Default: "strong",
		Dirs: home.Dirs{State: filepath.Join(dir, "s", "carboy"), Cache: filepath.Join(dir, "c", "carboy")},
	}
}

func TestVerdicts(t *testing.T) {
	kept := []sandbox.Enforcement{{Promise: "isolation", Enforced: true, Mechanism: "a fake"}}
	unkept := append(slices.Clone(kept), sandbox.Enforcement{Promise: "memory", Reason: "no controller"})
	refused := sandbox.Errorf(sandbox.Unsupported, "not on this machine").WithHint("use another")
	tests := []struct {
		name  string
		wall  *fakeWall
		state doctor.State
		text  string // of its error, or of what is weaker
		hint  string
	}{
		{"kept", &fakeWall{enforced: kept}, doctor.OK, "", ""},
		{"unkept", &fakeWall{enforced: unkept}, doctor.Weaker, "no controller", ""},
		{"not-opened", &fakeWall{openErr: refused}, doctor.Missing, "not on this machine", "use another"},
		{"not-started", &fakeWall{startErr: refused}, doctor.Missing, "not on this machine", "use another"},
		{"command-fails", &fakeWall{enforced: kept, code: 3}, doctor.Missing, "true ended with 3", ""},
		{"panic", &fakeWall{panics: true}, doctor.Missing, "the wall's own fault", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.wall.name = "strong"
			o := anywhere(t)
			o.Walls = []doctor.Wall{tt.wall.wall()}
			r, err := doctor.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Walls["strong"]
			text := got.Error
			for _, w := range got.Weaker {
				text += w.Reason
			}
			if got.State != tt.state || !strings.Contains(text, tt.text) || got.Hint != tt.hint || r.Works() != got.Works() {
				t.Errorf("got %+v\nwant %s, %q, hint %q", got, tt.state, tt.text, tt.hint)
			}
			if (got.Millis > 0) != got.Works() {
				t.Errorf("it took %d ms", got.Millis)
			}
			if len(tt.wall.instances) > 0 {
				t.Errorf("boxes left: %q", tt.wall.instances)
			}
			if entries, _ := os.ReadDir(filepath.Dir(filepath.Dir(o.Dirs.State))); len(entries) != 1 || entries[0].Name() != "c" {
				t.Errorf("left beside the cache: %v", entries)
			}
			for _, id := range doctor.CheckIDs() {
				if !slices.ContainsFunc(r.Lines, func(l doctor.Line) bool { return l.ID == id || id == "cgroups" }) {
					t.Errorf("no line of check %s", id)
				}
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	o := anywhere(t)
	f := fakeWall{name: "strong"}
	o.Walls = []doctor.Wall{f.wall()}
	if _, err := doctor.Run(ctx, o); !errors.Is(err, stopped) {
		t.Errorf("Run = %v, want %v", err, stopped)
	}
	if len(f.instances) > 0 {
		t.Errorf("boxes left: %q", f.instances)
	}
}

func TestGuarded(t *testing.T) {
	t.Run("panic", func(t *testing.T) {
		got := doctor.Guarded(t.Context(), time.Second, func(context.Context) doctor.Line { panic("oh") })
		if len(got) != 1 || got[0].State != doctor.Missing || got[0].ID != "tried" || !strings.Contains(got[0].Found, "oh") {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			began := time.Now()
			got := doctor.Guarded(t.Context(), 3*time.Second, func(context.Context) doctor.Line {
				<-release
				return doctor.Line{}
			})
			if len(got) != 1 || got[0].State != doctor.Missing || !strings.Contains(got[0].Found, "3s") {
				t.Errorf("got %+v", got)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("answers", func(t *testing.T) {
		got := doctor.Guarded(t.Context(), time.Second, func(context.Context) doctor.Line { return doctor.Outcome(doctor.OK, "fine") })
		if len(got) != 1 || got[0].State != doctor.OK || got[0].Title != "title" || got[0].Area != "area" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestSweep leaves alone what a living run has, and removes the rest with the
// instances in it.
func TestSweep(t *testing.T) {
	o := anywhere(t)
	if err := os.MkdirAll(o.Dirs.State, 0o700); err != nil {
		t.Fatal(err)
	}
	f := fakeWall{name: "strong", instances: []string{"doctor_old"}}
	living, remove, err := doctor.Scratch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(o.Dirs.State, ".carboy-doctor-1")
	if err := os.MkdirAll(filepath.Join(dead, "boxes"), 0o700); err != nil {
		t.Fatal(err)
	}
	o.Walls = []doctor.Wall{f.wall()}
	groups, err := cgroup.Find("/", "doctor_1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := groups.Create("probe", cgroup.Limits{PIDs: 8}); err != nil {
		t.Logf("without a control group: %v", err)
	}
	_, again, err := doctor.Scratch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.removed, []string{"doctor_old"}) {
		t.Errorf("removed %q", f.removed)
	}
	if names, err := groups.List(); len(names) > 0 || err != nil {
		t.Errorf("control groups of a killed run: %q, %v", names, err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed run left is there still: %v", err)
	}
	if _, err := os.Stat(living); err != nil {
		t.Errorf("a living run's directory: %v", err)
	}
	if err := errors.Join(remove(), again()); err != nil {
		t.Fatal(err)
	}
	if names := left(t, o.Dirs.State); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

func TestWithoutDirectories(t *testing.T) {
	o := anywhere(t)
	o.Dirs, o.DirsErr = home.Dirs{}, sandbox.Errorf(sandbox.Invalid, "HOME is not set").WithHint("set it")
	f := fakeWall{name: "strong"}
	o.Walls = []doctor.Wall{f.wall()}
	r, err := doctor.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Walls["strong"]; v.State != doctor.Missing || v.Hint != "set it" {
		t.Errorf("got %+v", v)
	}
	for _, l := range r.Lines {
		if (l.ID == "mounts" || l.ID == "overlay") && l.State != doctor.OK && unix.Geteuid() == 0 {
			t.Errorf("what needs no directory is tried all the same: %+v", l)
		}
	}
}

// TestLandlockCounts holds that the process wall is called weaker where it has
// to do without, and no other one is.
func TestLandlockCounts(t *testing.T) {
	lines := func(s doctor.State) []doctor.Line {
		return []doctor.Line{{ID: "other", State: doctor.Missing}, {ID: "landlock", State: s, Found: "the kernel has none"}}
	}
	tests := []struct {
		name, wall  string
		was, landed doctor.State
		want        doctor.State
	}{
		{"process-without", sandbox.WallProcess, doctor.OK, doctor.Weaker, doctor.Weaker},
		{"process-with", sandbox.WallProcess, doctor.OK, doctor.OK, doctor.OK},
		{"gvisor-without", sandbox.WallGVisor, doctor.OK, doctor.Weaker, doctor.OK},
		{"process-unusable", sandbox.WallProcess, doctor.Missing, doctor.Weaker, doctor.Missing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := doctor.WeakenedBy(doctor.Verdict{State: tt.was}, lines(tt.landed), tt.wall)
			if got.State != tt.want || (len(got.Weaker) > 0) != (tt.want == doctor.Weaker) {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}

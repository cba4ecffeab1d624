package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/internal/session/quota/project"
)

// projects is a file system with quotas of projects, which holds nobody to them.
type projects struct {
	mu     sync.Mutex
	ids    map[uint64]uint32 // by inode
	limits map[uint32]project.Limits
	fail   error // of Take and Hold
	held   int   // calls of Hold
}

func (p *projects) Take(_ context.Context, dir *os.File, _ int) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return 0, p.fail
	}
	ino := inodeOf(dir)
	if p.ids[ino] == 0 {
		p.ids[ino] = uint32(100 + len(p.ids))
	}
	return p.ids[ino], nil
}

func (p *projects) Hold(dir *os.File, id uint32, l project.Limits) (project.Usage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return project.Usage{}, p.fail
	}
	if p.ids[inodeOf(dir)] != id {
		return project.Usage{}, &project.UnfitError{Why: "it is not of that project"}
	}
	p.held++
	p.limits[id] = l
	return project.Usage{}, nil
}

func (p *projects) Lift(_ *os.File, id uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.limits, id)
	return nil
}

func (p *projects) Of(dir *os.File) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ids[inodeOf(dir)]
}

func (p *projects) set(fail error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = fail
}

// want is what the only project is limited to; "": nothing.
func (p *projects) want(t *testing.T, when string, want project.Limits) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.limits) == 0 && want == (project.Limits{}) {
		return
	}
	for _, is := range p.limits {
		if len(p.limits) == 1 && is == want {
			return
		}
	}
	t.Errorf("%s: %+v, want %+v", when, p.limits, want)
}

func inodeOf(f *os.File) uint64 {
	var st unix.Stat_t
	_ = unix.Fstat(int(f.Fd()), &st)
	return st.Ino
}

// onProjects runs a test whose workspace root is on such a file system. again
// is the next daemon.
func onProjects(t *testing.T, test func(t *testing.T, w *world, p *projects, root string, d *daemon, again func() *daemon)) {
	inBubble(t, config(), func(t *testing.T, w *world, idle *daemon) {
		root, p := t.TempDir(), &projects{ids: map[uint64]uint32{}, limits: map[uint32]project.Limits{}}
		idle.shutdown()
		c := config()
		c.AllowedMountRoots = []string{root}
		boot := func() *daemon {
			return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}},
				session.Options{Store: &w.store, Config: c, Projects: p})
		}
		d := boot()
		test(t, w, p, root, d, func() *daemon {
			d.shutdown()
			d = boot()
			return d
		})
		if err := d.DropAll(t.Context(), "", nil); err != nil {
			t.Error(err)
		}
		p.want(t, "in the end", project.Limits{})
		d.shutdown()
	})
}

const (
	mib   = 1 << 20
	files = quota.DefaultEntries + 1 // that a directory may have, where nothing is said
)

// hard is a session of a directory that is to have a hard quota.
func hard(key, dir string, mb int) sessions.Spec {
	s := asked(key, "echo x")
	s.HostPath, s.WorkspaceQuotaMB, s.Quota = dir, mb, sessions.QuotaHard
	return s
}

func TestHardQuotaOfADirectory(t *testing.T) {
	t.Run("shared", func(t *testing.T) {
		onProjects(t, func(t *testing.T, _ *world, p *projects, root string, d *daemon, again func() *daemon) {
			for _, s := range []sessions.Spec{hard("a", root, 4), hard("b", root, 2), hard("c", root, 8)} {
				if _, err := d.Exec(t.Context(), ws, s); err != nil {
					t.Fatal(err)
				}
				if info, err := d.Get(t.Context(), ws, s.SessionID); err != nil || info.Quota != sessions.QuotaHard {
					t.Errorf("Get = %+v, %v", info, err)
				}
			}
			p.want(t, "of three", project.Limits{Bytes: 2 * mib, Inodes: files})
			d = again()
			if err := d.Delete(t.Context(), ws, "b"); err != nil {
				t.Fatal(err)
			}
			p.want(t, "of two", project.Limits{Bytes: 4 * mib, Inodes: files})
			few := hard("d", root, 0)
			few.WorkspaceInodes = 50
			if _, err := d.Exec(t.Context(), ws, few); err != nil {
				t.Fatal(err)
			}
			p.want(t, "with one of few files", project.Limits{Bytes: 4 * mib, Inodes: 51})
		})
	})
	t.Run("not-held-any-more", func(t *testing.T) {
		onProjects(t, func(t *testing.T, _ *world, p *projects, root string, d *daemon, _ func() *daemon) {
			s := hard("a", root, 4)
			if _, err := d.Exec(t.Context(), ws, s); err != nil {
				t.Fatal(err)
			}
			p.set(&project.UnfitError{Why: "it was mounted otherwise", None: true})
			for range 2 {
				_, err := d.Exec(t.Context(), ws, s)
				if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "not held to its hard quota any more: it was mounted otherwise") {
					t.Errorf("Exec = %v", err)
				}
			}
			p.set(nil)
			if _, err := d.Exec(t.Context(), ws, s); err != nil {
				t.Errorf("Exec = %v", err)
			}
		})
	})
	t.Run("moved-away", func(t *testing.T) {
		onProjects(t, func(t *testing.T, _ *world, p *projects, root string, d *daemon, _ func() *daemon) {
			dir := filepath.Join(root, "dir")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Exec(t.Context(), ws, hard("a", dir, 4)); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(dir, root+"/elsewhere"); err != nil {
				t.Fatal(err)
			}
			p.want(t, "moved", project.Limits{Bytes: 4 * mib, Inodes: files})
			if err := d.Delete(t.Context(), ws, "a"); err != nil {
				t.Fatal(err)
			}
			p.want(t, "deleted", project.Limits{})
		})
	})
	t.Run("not-made", func(t *testing.T) {
		onProjects(t, func(t *testing.T, w *world, p *projects, root string, d *daemon, _ func() *daemon) {
			s := hard("a", root, 4)
			s.ExtraMounts = []sessions.Mount{{HostPath: "/proc", MountPath: "/more", Mode: "ro"}}
			_, err := d.Exec(t.Context(), ws, s)
			wantClass(t, "a mount that may not be", err, langbot.ClassValidation)
			p.want(t, "not made", project.Limits{})
		})
	})
}

func TestHardQuotaThatCannotBe(t *testing.T) {
	onProjects(t, func(t *testing.T, w *world, p *projects, root string, d *daemon, _ func() *daemon) {
		for _, tt := range []struct {
			fail   error
			notice string
		}{
			{&project.UnfitError{Why: "a file in it has another name outside"}, "a file in it has another name outside"},
			{&project.UnfitError{Why: "its file system has none", None: true}, ""},
			{errors.New("input/output error"), "that failed, as the daemon's log has it"},
		} {
			p.set(tt.fail)
			_, err := d.Exec(t.Context(), ws, hard("a", root, 4))
			wantClass(t, "hard", err, langbot.ClassValidation)
			s := hard("a", root, 4)
			s.Quota = ""
			res, err := d.Exec(t.Context(), ws, s)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(res.Notices, "\n"); !strings.Contains(text, tt.notice) || (tt.notice == "") == strings.Contains(text, "soft") {
				t.Errorf("%v: notices %q", tt.fail, text)
			}
			if info, err := d.Get(t.Context(), ws, "a"); err != nil || info.Quota != sessions.QuotaSoft {
				t.Errorf("Get = %+v, %v", info, err)
			}
			if err := d.Delete(t.Context(), ws, "a"); err != nil {
				t.Fatal(err)
			}
		}
		p.set(nil)
		for _, change := range []func(*sessions.Spec){
			func(s *sessions.Spec) { s.HostPathMode = sessions.MountReadOnly },
			func(s *sessions.Spec) { s.Quota = sessions.QuotaSoft },
			func(s *sessions.Spec) { s.WorkspaceQuotaMB = 0 },
		} {
			s := hard("a", root, 4)
			s.Quota = ""
			change(&s)
			if _, err := d.Exec(t.Context(), ws, s); err != nil {
				t.Fatal(err)
			}
			if err := d.Delete(t.Context(), ws, "a"); err != nil {
				t.Fatal(err)
			}
		}
		if p.held != 0 {
			t.Errorf("%d times a directory was held to a quota", p.held)
		}
	})
}

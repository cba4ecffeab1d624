package langbot_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// gate holds the writes of one workspace.
type gate struct {
	name  string
	shut  bool
	mu    sync.Mutex
	begun chan struct{} // told when a write waits
	open  chan struct{}
}

func newGate(name string) *gate {
	return &gate{name: name, begun: make(chan struct{}, 16), open: make(chan struct{})}
}

func (g *gate) before(workspace string) error {
	g.mu.Lock()
	shut := g.shut && workspace == g.name
	g.mu.Unlock()
	if shut {
		g.begun <- struct{}{}
		<-g.open
	}
	return nil
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// A write that takes its time keeps its own workspace's next generation waiting,
// and nobody else: neither who has something to be written as well, nor who has
// not.
func TestASlowWriteIsItsWorkspacesAlone(t *testing.T) {
	g := newGate("slow")
	opened := sync.OnceFunc(func() { close(g.open) })
	path := filepath.Join(t.TempDir(), "ledger")
	s, w, c := admitting(t, func(o *langbot.Options) { o.Ledger = path })
	s.h.BeforeWrites(g.before)
	t.Cleanup(opened) // before the handler is closed, which waits for it
	soon := noon.Add(4 * time.Minute)
	for _, name := range []string{"slow", "known"} {
		w.call(upsert, grantOf(name, 1, 1, 1, soon)).fields(t)
		w.about("box_create_session", `{"session_id":"x"}`, in(name, 1)).fields(t)
	}
	g.close()
	held := w.send(upsert, grantOf("slow", 2, 2, 1, soon), "")
	<-g.begun
	revoked := w.send(withdraw, `{"instance_uuid":"i","workspace_uuid":"slow","entitlement_revision":3}`, "") // waits for it

	w.about("box_exec", `{"session_id":"x","cmd":"id"}`, in("known", 1)).fields(t)
	w.call(upsert, grantOf("known", 2, 2, 1, soon)).fields(t)
	w.about("box_exec", `{"session_id":"x","cmd":"id"}`, in("known", 1)).want(t, "BoxAdmissionError: Sandbox admission grant belongs to another execution generation")
	w.about("box_exec", `{"session_id":"x","cmd":"id"}`, in("known", 2)).fields(t)
	w.call(upsert, grantOf("new", 1, 1, 1, soon)).fields(t)
	w.about("box_status", `{}`, in("newer", 7)).fields(t)
	w.call(withdraw, `{"instance_uuid":"i","workspace_uuid":"known","entitlement_revision":2}`).fields(t)
	w.call("box_health", `{}`).fields(t)
	w.call("box_init", `{}`).fields(t)
	// What it has is not over before the next is written.
	w.about("box_exec", `{"session_id":"x","cmd":"id"}`, in("slow", 1)).fields(t)

	opened()
	for range 2 {
		switch a := w.receive(); a.Seq {
		case held, revoked:
			a.fields(t)
		default:
			t.Errorf("an answer for %d", a.Seq)
		}
	}
	w.about("box_exec", `{"session_id":"x","cmd":"id"}`, in("slow", 2)).want(t, "BoxAdmissionError: Sandbox admission grant is missing")
	w.about("box_status", `{}`, in("slow", 1)).want(t, "PermissionError: Stale")
	c.set(soon)
	_, w, _ = admitting(t, func(o *langbot.Options) { o.Ledger = path })
	w.about("box_status", `{}`, in("slow", 1)).want(t, "PermissionError: Stale")
	w.about("box_status", `{}`, in("newer", 6)).want(t, "PermissionError: Stale")
	w.call(upsert, grantOf("known", 2, 2, 1, soon)).want(t, "was revoked")
	w.call(upsert, grantOf("slow", 2, 3, 1, soon)).want(t, "was revoked")
	w.call(upsert, grantOf("slow", 2, 4, 1, soon)).fields(t)
}

// What could not be written is not so, and takes no workspace's place. Why is
// for the log alone, once for each answer.
func TestAWriteThatFails(t *testing.T) {
	full := true
	var log strings.Builder
	s := serve(t, func(o *langbot.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Ledger, o.Limits.MaxAdmissions = filepath.Join(t.TempDir(), "ledger"), 2
	})
	s.h.BeforeWrites(func(string) error {
		if full {
			return errors.New("no space left on device")
		}
		return nil
	})
	w := s.connect(t, api.HeaderInstance, "i")
	for _, name := range []string{"a", "b", "c"} {
		w.about("box_get_sessions", `{}`, in(name, 2)).want(t, "BoxError: internal error")
	}
	full = false
	if got := strings.Count(log.String(), "level=ERROR"); got != 3 || !strings.Contains(log.String(), "no space left on device") {
		t.Errorf("the log has %d errors: %s", got, log.String())
	}
	w.about("box_get_sessions", `{}`, in("a", 1)).fields(t)
	w.about("box_get_sessions", `{}`, in("b", 1)).fields(t)
	w.about("box_get_sessions", `{}`, in("c", 1)).want(t, "PermissionError: Box generation fence capacity reached")
}

// A command that outlives its workspace's grant is answered to nobody, and leaves
// no session.
func TestASessionThatComesAfterItsGrant(t *testing.T) {
	s, w, _ := admitting(t, nil)
	s.sessions.block = make(chan struct{})
	w.call(upsert, grantOf("w", 1, 1, 1, noon.Add(time.Minute))).fields(t)
	exec := w.send("box_exec", `{"session_id":"x","cmd":"id"}`, in("w", 1))
	<-s.sessions.begun
	w.call(withdraw, `{"instance_uuid":"i","workspace_uuid":"w","entitlement_revision":1}`).fields(t)
	owner := "box:" + s.sessions.last().Key[:nsLen]
	// It comes about only now.
	if _, err := s.sessions.Create(t.Context(), sandbox.Caller{Owner: owner}, s.sessions.last()); err != nil {
		t.Fatal(err)
	}
	close(s.sessions.block)
	if a := w.receive(); a.Seq != exec {
		t.Errorf("an answer for %d", a.Seq)
	} else {
		a.want(t, "BoxAdmissionError: Sandbox admission grant is missing")
	}
	if got := s.sessions.keys(owner); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// The ledger is what it was, wherever the machine went down.
func TestLedger(t *testing.T) {
	type files map[string]string
	const whole = `{"instance":"i","workspace":"w","generation":5}` + "\n"
	// The name of w's own file, as the first life makes it.
	of := func(t *testing.T, dir string) string {
		entries, err := os.ReadDir(filepath.Join(dir, "ledger.d"))
		if err != nil || len(entries) != 1 {
			t.Fatalf("the directory has %v, %v", entries, err)
		}
		return filepath.Join("ledger.d", entries[0].Name())
	}
	open := func(t *testing.T, dir string) (*wire, error) {
		h, err := langbot.New(langbot.Options{Sessions: newSessions(), Owner: "uid:0", Ledger: filepath.Join(dir, "ledger"), Limits: sessions.Limits{MaxAdmissions: 100}})
		if err != nil {
			return nil, err
		}
		_ = h.Close()
		return serve(t, func(o *langbot.Options) { o.Ledger = filepath.Join(dir, "ledger") }).connect(t, api.HeaderInstance, "i"), nil
	}
	first := t.TempDir()
	w, err := open(t, first)
	if err != nil {
		t.Fatal(err)
	}
	w.about("box_get_sessions", `{}`, in("w", 5)).fields(t)
	own := of(t, first)

	tests := []struct {
		name  string
		files files
		newer int // the oldest generation that is accepted; 0: the ledger is refused
	}{
		{"nothing-yet", files{}, 1},
		{"in-the-file", files{"ledger": whole}, 5},
		{"on-its-own", files{own: whole}, 5},
		{"newer-on-its-own", files{"ledger": strings.Replace(whole, "5", "4", 1), own: whole}, 5},
		{"not-removed-yet", files{"ledger": whole, own: whole}, 5},
		{"the-last-of-several", files{"ledger": strings.Replace(whole, "5", "4", 1) + whole}, 5},
		{"never-whole", files{"ledger": whole, "ledger.d/.new-12": `{"inst`}, 5},
		{"torn-at-the-end", files{"ledger": whole + `{"instance":"i","workspace":"w","gen`}, 5},
		{"damaged-in-the-middle", files{"ledger": "garbage\n" + whole}, 0},
		{"damaged-on-its-own", files{own: `{"instance":"i","wor`}, 0},
		{"empty-on-its-own", files{own: ``}, 0},
		{"of-another", files{own: strings.Replace(whole, `"w"`, `"v"`, 1)}, 0},
		{"a-stranger", files{"ledger.d/notes.txt": "x"}, 0},
		{"endless-on-its-own", files{own: whole + strings.Repeat(" ", 1<<20)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "ledger.d"), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, content := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w, err := open(t, dir)
			if tt.newer == 0 {
				if err == nil {
					t.Error("it was taken for a ledger")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.newer > 1 {
				w.about("box_get_sessions", `{}`, in("w", tt.newer-1)).want(t, "PermissionError: Stale")
			}
			if left, _ := os.ReadDir(filepath.Join(dir, "ledger.d")); len(left) != 0 {
				t.Errorf("the directory still has %v", left)
			}
			w.about("box_get_sessions", `{}`, in("w", tt.newer)).fields(t)
		})
	}
}

// Many workspaces at once are all there afterwards, each once.
func TestLedgerOfManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	const many, steps = 24, 4
	s := serve(t, func(o *langbot.Options) { o.Ledger = path })
	var wg sync.WaitGroup
	for n := range many {
		w := s.connect(t, api.HeaderInstance, "i")
		wg.Go(func() {
			for g := range steps {
				w.about("box_get_sessions", `{}`, in(fmt.Sprint("w", n), g+1)).fields(t)
			}
		})
	}
	wg.Wait()
	if own, err := os.ReadDir(path + ".d"); err != nil || len(own) != many {
		t.Errorf("%d files for %d workspaces: %v", len(own), many, err)
	}
	w := serve(t, func(o *langbot.Options) { o.Ledger = path }).connect(t, api.HeaderInstance, "i")
	for n := range many {
		w.about("box_get_sessions", `{}`, in(fmt.Sprint("w", n), steps-1)).want(t, "PermissionError: Stale")
		w.about("box_get_sessions", `{}`, in(fmt.Sprint("w", n), steps)).fields(t)
	}
}

package boxservice_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// This program is the child as well, where a test starts it so.
const (
	envChild = "TEST_BOX_CHILD" // how it behaves
	envNotes = "TEST_BOX_NOTES" // a file to which it adds its process IDs
)

func TestMain(m *testing.M) {
	if how := os.Getenv(envChild); how != "" {
		if err := runChild(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runChild is a runtime of which a process is left behind unless somebody ends
// its group.
func runChild(how string) error {
	if how == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	if how == "fails" { // with much to say, after its process ID
		fmt.Fprintln(os.Stderr, os.Getpid())
		for n := range sayings {
			fmt.Fprintf(os.Stderr, "%d%s\n", n, strings.Repeat(" why", 800))
		}
		return errors.New("that was all")
	}
	left := exec.Command("sleep", "1000")
	left.Stdout, left.Stderr = os.Stdout, os.Stderr // it keeps them open
	if err := left.Start(); err != nil {
		return err
	}
	notes, err := os.OpenFile(os.Getenv(envNotes), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer notes.Close()
	fmt.Fprintf(notes, "%d\n%d\n", os.Getpid(), left.Process.Pid)
	fmt.Fprintln(os.Stderr, "ready")
	conn := rpc.NewStdio(os.Stdin, os.Stdout, func() error { return nil })
	p := rpc.NewPeer(rpc.Options{Conn: conn, Serve: func(_ context.Context, r *api.Request) (any, error) {
		switch r.Action {
		case api.ActionShutdown:
			os.Exit(1) // it dies
		case api.ActionBackendInfo:
			env := strings.Join([]string{os.Getenv("LANGBOT_BOX_CONFIG"), os.Getenv("LANGBOT_BOX_TRUSTED_INSTANCE_UUID"), strconv.Itoa(len(os.Getenv("LANGBOT_BOX_CONTROL_TOKEN")))}, " ")
			return sessions.Backend{Name: &env, Available: true}, nil
		}
		return r.Data, nil
	}})
	err = p.Run(context.Background())
	if how == "stubborn" {
		<-time.After(time.Hour) // not for ever, which without others would be a deadlock
	}
	return err
}

// newChild is a connector whose child behaves in one way, and the file in which
// process IDs stand.
func newChild(t *testing.T, how string, o boxservice.Options) (c *boxservice.Connector, notes string) {
	t.Helper()
	notes = filepath.Join(t.TempDir(), "notes")
	o.Command = []string{os.Args[0]}
	o.Env = append(os.Environ(), envChild+"="+how, envNotes+"="+notes)
	c, err := boxservice.NewConnector(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, notes
}

// pids are the processes that children have noted.
func pids(t *testing.T, notes string) (list []int) {
	t.Helper()
	b, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
	}
	return list
}

// gone waits until none of the processes is left; one that waits to be reaped
// is.
func gone(t *testing.T, list []int) {
	t.Helper()
	for _, pid := range list {
		if !patience.Until(10*time.Second, func() bool { return !alive(pid) }) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z")
}

// timed is how long f takes.
func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func TestChild(t *testing.T) {
	t.Run("ends-with-its-input", func(t *testing.T) {
		lines := make(chan string, 100)
		c, notes := newChild(t, "polite", boxservice.Options{
			Init: map[string]any{"k": "v"}, Instance: "me", Log: slog.New(slog.NewTextHandler(lineWriter(lines), nil)),
		})
		if c.UsesWebSocket() {
			t.Error("it says that the child has a file system of its own")
		}
		b, err := c.Client().Backend(t.Context())
		if err != nil || b.Name == nil || *b.Name != `{"k":"v"} me 52` {
			t.Errorf("the child's environment is not as it should be: %v, %v", b, err)
		}
		list := pids(t, notes)
		for _, pid := range list {
			if !alive(pid) {
				t.Fatalf("process %d has ended already", pid)
			}
		}
		took := []time.Duration{timed(func() { c.Close() })}
		gone(t, list)
		close(lines)
		for len(took) < 5 && slices.Min(took) >= 3*time.Second { // it had to be told, or the machine is busy
			c, notes := newChild(t, "polite", boxservice.Options{})
			took = append(took, timed(func() { c.Close() }))
			gone(t, pids(t, notes))
		}
		if slices.Min(took) >= 3*time.Second {
			t.Errorf("it took %v: it had to be told", took)
		}
		for line := range lines {
			if strings.Contains(line, "line=ready") {
				return
			}
		}
		t.Error("what the child said was not logged")
	})
	t.Run("stubborn", func(t *testing.T) {
		c, notes := newChild(t, "stubborn", boxservice.Options{})
		list := pids(t, notes)
		c.Close()
		gone(t, list)
	})
	t.Run("dies", func(t *testing.T) {
		again := make(chan struct{}, 10)
		c, notes := newChild(t, "polite", boxservice.Options{OnConnect: func(context.Context, *boxservice.Client) { again <- struct{}{} }})
		<-again
		first := pids(t, notes)
		if err := c.Client().Shutdown(t.Context()); !errors.Is(err, boxservice.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		gone(t, first)
		<-again // another one was started
		all := pids(t, notes)
		if len(all) != 2*len(first) {
			t.Fatalf("there were %d processes, want twice %d", len(all), len(first))
		}
		c.Close()
		gone(t, all)
	})
	t.Run("large-messages", func(t *testing.T) {
		c, _ := newChild(t, "polite", boxservice.Options{})
		id := strings.Repeat("long ", 100_000)
		s, err := c.Client().Get(t.Context(), id)
		if err != nil || s.SessionID != id {
			t.Errorf("%d bytes came back: %v", len(s.SessionID), err)
		}
	})
	t.Run("not-there", func(t *testing.T) {
		c, err := boxservice.NewConnector(boxservice.Options{Command: []string{"/nonexistent/carboy"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Open(t.Context()); boxservice.Class(err) == "" || !strings.Contains(err.Error(), "/nonexistent/carboy") {
			t.Errorf("got %v", err)
		}
	})
}

// sayings are more than what is read of a child at once, and less than a pipe
// holds.
const sayings = 15

// What a child has said before its end is logged, though it is read later: it is
// why it ended.
func TestChildsLastWords(t *testing.T) {
	lines := make(chan string, 1000)
	var once sync.Once
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		if _, pid, ok := strings.Cut(string(b), "line="); ok {
			once.Do(func() {
				n, _ := strconv.Atoi(strings.TrimSpace(pid))
				patience.Until(20*time.Second, func() bool { return syscall.Kill(n, 0) != nil }) // it was reaped
			})
		}
		return lineWriter(lines).Write(b)
	}), nil))
	c, err := boxservice.NewConnector(boxservice.Options{Command: []string{os.Args[0]}, Env: append(os.Environ(), envChild+"=fails"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Open(t.Context()); !errors.Is(err, boxservice.ErrUnavailable) {
		t.Errorf("Open = %v", err)
	}
	c.Close()
	close(lines)
	said := 0
	for line := range lines {
		if strings.Contains(line, " why why") {
			said++
		}
		if strings.Contains(line, "that was all") {
			said++
		}
	}
	if said != sayings+1 {
		t.Errorf("%d lines were logged, of %d", said, sayings+1)
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	s := bufio.NewScanner(strings.NewReader(string(b)))
	for s.Scan() {
		w <- s.Text()
	}
	return len(b), nil
}

package audit_test

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/audit"
)

func TestAdd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	var said strings.Builder
	l := audit.Open(dir, slog.New(slog.NewTextHandler(&said, nil)))
	code := 3
	l.Add(session.AuditRecord{
		Time: time.Unix(1, 0), Owner: "uid:0", Session: "person\nalice", Sandbox: "box1", Action: "exec", Command: "pip\ninstall",
		EnvKeys: []string{"TOKEN"}, Status: "completed", ExitCode: &code, Duration: 1500 * time.Millisecond, Queued: time.Second,
		Stdout: 10, Stderr: 20, Limits: []string{"disk"}, SessionIs: "created",
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, audit.Name)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":"1970-01-01T00:00:01Z","owner":"uid:0","session":"person\nalice","session_is":"created","sandbox":"box1",` +
		`"action":"exec","command":"pip\ninstall","env_keys":["TOKEN"],"status":"completed","exit_code":3,` +
		`"duration_ms":1500,"queued_ms":1000,"stdout_bytes":10,"stderr_bytes":20,"limits":["disk"]}` + "\n"
	if string(b) != want {
		t.Errorf("the record is\n%swant\n%s", b, want)
	}
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v %v", st.Mode(), err)
	}
	if said.Len() != 0 {
		t.Errorf("the log has %q", said.String())
	}
}

// Many at once are each one line.
func TestAddTogether(t *testing.T) {
	dir := t.TempDir()
	l := audit.Open(dir, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 20 {
				l.Add(session.AuditRecord{Command: strings.Repeat("x", 400)})
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, audit.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		if !json.Valid(s.Bytes()) {
			t.Fatalf("line %d is %q", n, s.Text())
		}
	}
	if n != 1000 {
		t.Errorf("there are %d records, want 1000", n)
	}
}

// What can't be written is counted.
func TestLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := audit.Open(dir, slog.New(slog.DiscardHandler))
	l.Add(session.AuditRecord{})
	if l.Lost() != 1 {
		t.Errorf("lost %d, want 1", l.Lost())
	}
}

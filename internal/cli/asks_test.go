package cli_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// told is a stderr that says when a text has come.
type told struct {
	mu   sync.Mutex
	b    bytes.Buffer
	text string
	come chan struct{}
}

func (w *told) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.b.String(), w.text)
	n, err := w.b.Write(p)
	if !before && strings.Contains(w.b.String(), w.text) {
		close(w.come)
	}
	return n, err
}

// Who attends a sandbox by its name is not told of another owner's of that name.
func TestAskedOfAnother(t *testing.T) {
	d := startFake(t)
	svc, err := client.New(client.Options{Socket: d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	sb, err := svc.Create(t.Context(), api.CreateRequest{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	one := func(id int64, sandboxID string) api.Approval {
		return api.Approval{ID: id, Sandbox: "web", SandboxID: sandboxID, State: "asked", What: "GET https://api.example.com/", Rule: "api"}
	}
	d.mu.Lock()
	d.follows = []api.Approval{one(7, "sb_of_another"), one(8, sb.ID)}
	d.mu.Unlock()
	errs := &told{text: "allow 8", come: make(chan struct{})}
	stop := cli.TellAsked(t.Context(), &console.Console{Stderr: errs, Now: time.Now}, svc, "web")
	<-errs.come
	stop()
	if got := errs.b.String(); strings.Contains(got, "allow 7") {
		t.Errorf("told: %s", got)
	}
}

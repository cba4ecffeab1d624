package volume_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// fakeRunner stands in for the processes that work on a volume's files.
type fakeRunner struct {
	fill func(tell func(json.RawMessage)) error
}

func (fakeRunner) Rootless() bool { return false }

func (fakeRunner) Run(_ context.Context, name string, _ io.Reader, out io.Writer, _ ...*os.File) error {
	_, err := io.WriteString(out, name)
	return err
}

func (f fakeRunner) Ask(context.Context, string, any, any, io.Reader, ...*os.File) error {
	return fmt.Errorf("nobody asks")
}

func (f fakeRunner) AskNews(_ context.Context, _ string, _, answer any, _ io.Reader, news func(json.RawMessage), _ ...*os.File) error {
	if err := f.fill(news); err != nil {
		return err
	}
	return json.Unmarshal([]byte(`{"skipped":["pipe: is a fifo"],"more":7}`), answer)
}

var from = sandbox.HostDir{Path: "/home/ann/src", Dev: 1, Ino: 2}

func TestImport(t *testing.T) {
	w := newWorld(t)
	w.roles = fakeRunner{func(tell func(json.RawMessage)) error {
		tell(json.RawMessage(`{"files":3,"bytes":40}`))
		return nil
	}}
	s := w.open(t)
	var told sandbox.Copied
	ctx := sandbox.WithCopied(t.Context(), func(c sandbox.Copied) { told = c })
	var skipped []string
	v, err := s.Create(ctx, ann, volume.New{Name: "tree", From: from, Skipped: func(what string) { skipped = append(skipped, what) }})
	if !slices.Equal(skipped, []string{"pipe: is a fifo", "7 more"}) {
		t.Errorf("skipped: %q", skipped)
	}
	if err != nil || v.From != from || told != (sandbox.Copied{Files: 3, Bytes: 40}) {
		t.Fatalf("%+v, %v, told %+v", v, err, told)
	}
	s.Close()
	s = w.open(t)
	if got, err := s.Get(t.Context(), ann, "tree"); err != nil || got != v {
		t.Errorf("opened again: %+v, %v", got, err)
	}
	create(t, s, ann, "empty")
	var out strings.Builder
	wantKind(t, "changes of what began empty", s.Changes(t.Context(), ann, "empty", sandbox.ChangesOptions{}, &out), sandbox.Conflict)
	wantKind(t, "changes of another's", s.Changes(t.Context(), bob, v.ID, sandbox.ChangesOptions{}, &out), sandbox.NotFound)
	wantKind(t, "export of another's", s.Export(t.Context(), bob, v.ID, &out), sandbox.NotFound)
	if out.Len() > 0 {
		t.Errorf("told: %q", out.String())
	}
	if err := s.Changes(t.Context(), ann, "tree", sandbox.ChangesOptions{}, &out); err != nil || out.String() != "carboy-volume-changes" {
		t.Errorf("changes: %q, %v", out.String(), err)
	}
}

// What could not be filled is none, and says why.
func TestImportFails(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		err        error
		kind       sandbox.Kind
	}{
		{"too-large", "/home/ann/src is more than it can hold, which is 32m", sandbox.Errorf(sandbox.Exhausted, "no room left on the sandbox's disk"), sandbox.Exhausted},
		{"full", "the disk of carboy's state is full", fmt.Errorf("copy: %w", unix.ENOSPC), sandbox.Exhausted},
		{"another", "another has its place", sandbox.Errorf(sandbox.Conflict, "another has its place"), sandbox.Conflict},
		{"broken", "could not make it", io.ErrUnexpectedEOF, sandbox.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.roles = fakeRunner{func(func(json.RawMessage)) error { return tt.err }}
			s := w.open(t)
			_, err := s.Create(t.Context(), ann, volume.New{Name: "tree", From: from})
			wantKind(t, "create", err, tt.kind)
			if !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
			if dirs, _ := filepath.Glob(filepath.Join(w.volumes(), ".*vol_*")); len(dirs) > 0 {
				t.Errorf("it left %q", dirs)
			}
			create(t, s, ann, "tree") // the name is free
		})
	}
}

// A volume's name is taken while it is filled, and nobody waits for that.
func TestImportTakesItsTime(t *testing.T) {
	w := newWorld(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	w.roles = fakeRunner{func(func(json.RawMessage)) error {
		close(begun)
		<-goOn
		return nil
	}}
	s := w.open(t)
	done := make(chan error)
	go func() {
		_, err := s.Create(t.Context(), ann, volume.New{Name: "tree", From: from})
		done <- err
	}()
	<-begun
	_, err := s.Create(t.Context(), ann, volume.New{Name: "tree"})
	wantKind(t, "a name that is being taken", err, sandbox.Conflict)
	create(t, s, ann, "other")
	if got := names(s.List(t.Context(), ann)); !slices.Equal(got, []string{"other"}) {
		t.Errorf("there are %v", got)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), ann, "tree"); err != nil {
		t.Error(err)
	}
}

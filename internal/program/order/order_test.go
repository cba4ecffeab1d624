package order_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/program/order"
)

func TestTake(t *testing.T) {
	want := order.Order{
		Version: "v1", Exe: "/usr/bin/carboy", Programs: map[string]order.Program{order.GVisor: {FD: 4, Path: "/x", Digest: "d", Size: 9}},
		Serve:     order.Serve{Listen: "a:1", Background: true, LangBot: &order.LangBot{Stdio: true, MountRoots: []string{}}},
		Uninstall: order.Uninstall{StopOnly: true},
	}
	line, err := want.Environ()
	if err != nil {
		t.Fatal(err)
	}
	env, err := want.In([]string{"A=1", order.Variable + "=an older one", "B=2"})
	if err != nil || !slices.Equal(env, []string{"A=1", "B=2", line}) {
		t.Errorf("In = %q, %v", env, err)
	}
	name, value, _ := strings.Cut(line, "=")
	t.Setenv(name, value)
	got, err := order.Take()
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("Take: %v (-want +got):\n%s", err, d)
	}
	if _, ok := os.LookupEnv(order.Variable); ok {
		t.Error("what this process starts would have its order")
	}
	if _, err := order.Take(); !errors.Is(err, order.ErrNone) {
		t.Errorf("without one: %v", err)
	}
	for _, bad := range []string{"", "{", `{"version":1}`, `{"versoin":"v1"}`} {
		t.Setenv(order.Variable, bad)
		if _, err := order.Take(); err == nil || errors.Is(err, order.ErrNone) {
			t.Errorf("of %q: %v", bad, err)
		}
	}
}

// TestInherit: what was handed down is a file, and nothing else will do.
func TestInherit(t *testing.T) {
	f, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	inherit := func(fd int) (*os.File, error) {
		return order.Order{Programs: map[string]order.Program{order.GVisor: {FD: fd}}}.Inherit(order.GVisor)
	}
	got, err := inherit(int(f.Fd()))
	if err != nil || got.Fd() != f.Fd() {
		t.Errorf("Inherit = %v, %v", got, err)
	}
	for name, fd := range map[string]int{"closed": 9999, "pipe": int(r.Fd())} {
		if _, err := inherit(fd); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if _, err := (order.Order{}).Inherit(order.GVisor); err == nil {
		t.Error("nothing passes")
	}
	if err := got.Close(); err != nil {
		t.Error(err)
	}
}

// TestCheck: all of a file is read, and the name of one that is another goes, so that it is
// unpacked anew.
func TestCheck(t *testing.T) {
	const text = "the program"
	sum := sha256.Sum256([]byte(text))
	for name, content := range map[string]string{"same": text, "changed": "the pr0gram", "longer": text + "x", "cut": "the"} {
		path := filepath.Join(t.TempDir(), "p")
		if err := os.WriteFile(path, []byte(content), 0o555); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		p := order.Program{Path: path, Digest: hex.EncodeToString(sum[:]), Size: int64(len(text))}
		for range 2 { // wherever it stands
			if err := p.Check(f); (err == nil) != (content == text) || err != nil && !errors.Is(err, order.ErrUnfit) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := os.Lstat(path); (err == nil) != (content == text) {
			t.Errorf("%s: its name: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

package order_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/program/order"
)

func TestTake(t *testing.T) {
	want := order.Order{
		Version: "v1", Exe: "/usr/bin/carboy", Programs: map[string]int{order.GVisor: 4},
		Serve:     order.Serve{Listen: "a:1", Background: true, LangBot: &order.LangBot{Stdio: true, MountRoots: []string{}}},
		Uninstall: order.Uninstall{StopOnly: true},
	}
	line, err := want.Environ()
	if err != nil {
		t.Fatal(err)
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
	got, err := order.Inherit(map[string]int{order.GVisor: int(f.Fd())}, order.GVisor)
	if err != nil || got.Fd() != f.Fd() {
		t.Errorf("Inherit = %v, %v", got, err)
	}
	for name, handed := range map[string]map[string]int{
		"nothing": nil, "closed": {order.GVisor: 9999}, "pipe": {order.GVisor: int(r.Fd())},
	} {
		if _, err := order.Inherit(handed, order.GVisor); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if err := got.Close(); err != nil {
		t.Error(err)
	}
}

package home_test

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/home"
)

// Who has connected when a listener is retired is still accepted, and nobody else.
func TestRetire(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := home.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := home.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := l.Retire(); err != nil {
		t.Fatal(err)
	}
	if late, err := home.Dial(t.Context(), path); err == nil {
		late.Close()
		t.Error("someone connected to a listener that was retired")
	}
	got, err := l.Accept()
	if err != nil {
		t.Fatalf("Accept of who waits: %v", err)
	}
	got.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of nobody = %v", err)
	}
}

// An Accept that waits ends.
func TestRetireWakes(t *testing.T) {
	l, err := home.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() { _, err := l.Accept(); done <- err }()
	if err := l.Retire(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v", err)
	}
}

package instance

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Who mounts a view waits for another that has it mounted.
func TestReadyUpper(t *testing.T) {
	dir := t.TempDir()
	open := func() *os.File {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	defer second.Close()
	if err := readyUpper(first); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(second.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		t.Fatal("two at once")
	}
	got := make(chan error)
	go func() { got <- readyUpper(second) }()
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	first.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

package content

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// Whoever reads and writes as many volumes as it may has none of the others'
// places, and gives up one of its own that nobody uses for another.
func TestPlacesOfOneOwner(t *testing.T) {
	l := New(Options{Launch: func(*exec.Cmd) error { return errors.New("no process") }})
	for i := range maxOfOwner {
		id := fmt.Sprint("v", i)
		l.ps[id] = &process{id: id, owner: "greedy", users: 1, up: make(chan struct{}), gone: make(chan struct{})}
	}
	ask := func(owner string) error {
		_, err := l.acquire(t.Context(), Target{ID: "v-of-" + owner, Owner: owner, Tree: tree.Tree{Point: "/x/y"}})
		return err
	}
	if err := ask("greedy"); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("one more of the same owner: %v", err)
	}
	if err := ask("other"); err == nil || sandbox.KindOf(err) == sandbox.Exhausted {
		t.Errorf("one of another owner: %v, want its start to be tried", err)
	}
	idle := l.ps["v0"]
	idle.users, idle.err = 0, errors.New("it never began")
	close(idle.up)
	if err := ask("greedy"); err == nil || sandbox.KindOf(err) == sandbox.Exhausted {
		t.Errorf("in the place of one that nobody uses: %v, want its start to be tried", err)
	}
}

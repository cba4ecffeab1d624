package cli

import (
	"strings"
	"testing"
)

// TestWanted: a command line that names a command makes that one alone, by its own name,
// and any other makes all.
func TestWanted(t *testing.T) {
	all := len(verbs())
	for _, v := range verbs() {
		want := 1
		if v.name == "completion" {
			want = all
		}
		a := newApp(Env{})
		a.typed = []string{v.name, "create"}
		if got := a.wanted(); len(got) != want {
			t.Errorf("carboy %s makes %d commands, want %d", v.name, len(got), want)
		}
		if got := v.make(newApp(Env{})).Name(); got != v.name {
			t.Errorf("%s is the command %s", v.name, got)
		}
	}
	for _, typed := range []string{"", "--help", "help ls", "-x ls", "sl", "__complete ls", "lss"} {
		a := newApp(Env{})
		a.typed = strings.Fields(typed)
		if got := a.wanted(); len(got) != all {
			t.Errorf("carboy %s makes %d commands, want all %d", typed, len(got), all)
		}
	}
}

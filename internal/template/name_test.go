package template_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/template"
)

// A template that others may use goes by its owner's namespace: who had that of
// another would have their sandboxes begin with what is in it.
func TestNamespacesAreApart(t *testing.T) {
	of := map[string]string{}
	for _, owner := range []string{
		"uid:0", "uid:1000", "key:uid-0", "key:uid-1000", "key:UID-1000", "key:alice", "key:Alice", "key:a.b", "key:a-b", "key:of-alice",
		"key:of-uid-1000", "box:ws-0123456789abcdef01234567", "key:ws-0123456789abcdef01234567", "key:_x", "key:-x", "template:alice", "alice", "",
	} {
		ns := template.Namespace(owner)
		if other, ok := of[ns]; ok {
			t.Errorf("%q and %q are both called %q", owner, other, ns)
		}
		of[ns] = owner
		if r, err := template.ParseRef(ns + "/web"); err != nil || r.Namespace != ns {
			t.Errorf("%q is called %q, which can't be named: %v", owner, ns, err)
		}
		if again := template.Namespace("key:" + ns); again == ns && owner != "key:"+ns {
			t.Errorf("a key %q is called what %q is", ns, owner)
		}
	}
	for owner, want := range map[string]string{"uid:1000": "uid-1000", "key:alice": "alice", "key:a_b-2": "a_b-2"} {
		if got := template.Namespace(owner); got != want {
			t.Errorf("Namespace(%q) = %q, want %q", owner, got, want)
		}
	}
}

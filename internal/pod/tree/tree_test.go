package tree_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/tree"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

func rw(target string) scope.Rule {
	return scope.Rule{Target: target, Permission: scope.Write, Recursive: true}
}

func ro(target string) scope.Rule {
	return scope.Rule{Target: target, Permission: scope.Read, Recursive: true}
}

func pod(name, parent string, rules ...scope.Rule) record.Pod {
	return record.Pod{Name: name, Parent: parent, State: record.Live, Allow: rules, Socket: "/run/" + name + "/sock"}
}

func mustTree(t *testing.T, pods ...record.Pod) *tree.Tree {
	t.Helper()
	tr, err := tree.New(pods)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// family has a parent with two children and a grandchild, and a stranger.
func family(t *testing.T) *tree.Tree {
	t.Helper()
	return mustTree(
		t, pod("root", "", rw("/w"), ro("/doc")), pod("a", "root", rw("/w/a"), ro("/w")), pod("b", "root", rw("/w/b")),
		pod("x", "a", rw("/w/a/x")), pod("other", "", rw("/o")),
	)
}

func TestDelegate(t *testing.T) {
	for _, tt := range []struct {
		name string
		add  record.Pod
		kind sandbox.Kind // "": it is added
		want string       // of the error
		hint string
	}{
		{"part", pod("c", "root", rw("/w/c")), "", "", ""},
		{"read-anything", pod("c", "root", ro("/w/a"), ro("/doc")), "", "", ""},
		{"of-a-child", pod("c", "a", rw("/w/a/c"), ro("/w/b")), "", "", ""},
		{"outside", pod("c", "root", rw("/o")), sandbox.Invalid, "requested scope `/o` is not within spawner `root`'s effective scope: no rule is about it", ""},
		{"outside-among-good-ones", pod("c", "root", rw("/w/c"), rw("/etc")), sandbox.Invalid, "requested scope `/etc` is not within", ""},
		{"write-what-it-reads", pod("c", "root", rw("/doc")), sandbox.Invalid, "it may only be read there", "the nearest that would be within is read:/doc"},
		{"sibling-overlap", pod("c", "root", rw("/w/a/deep")), sandbox.Invalid, "requested scope `/w/a/deep` is not within spawner `root`'s effective scope: pod `a` has write:/w/a", "the nearest that would be within is read:/w/a/deep"},
		{"all-of-it", pod("c", "root", rw("/w")), sandbox.Invalid, "pod `a` has write:/w/a", "the nearest that would be within is read:/w"},
		{"what-a-child-gave-on", pod("c", "a", rw("/w/a")), sandbox.Invalid, "pod `x` has write:/w/a/x", "the nearest that would be within is read:/w/a"},
		{"name-taken", pod("b", "root", rw("/w/c")), sandbox.Conflict, "pod name `b` is already registered", "choose another name, or stop that pod"},
		{"no-spawner", pod("c", "nobody", rw("/w/c")), sandbox.NotFound, "pod `nobody` is not registered", ""},
		{"no-name", pod("../c", "root", rw("/w/c")), sandbox.Invalid, `"../c" is no name for a pod`, ""},
		{"no-rules", pod("c", "root"), sandbox.Invalid, "scope must declare at least one allow rule", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := family(t)
			before := tr.All()
			c, err := tr.Delegate(tt.add)
			if d := cmp.Diff(before, tr.All()); d != "" {
				t.Errorf("asking changed it (-before +after)\n%s", d)
			}
			if tt.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				if tr.Apply(c); !slices.Equal(c.Affected, []string{tt.add.Parent}) {
					t.Errorf("affected %q", c.Affected)
				}
				if got, ok := tr.Find(tt.add.Name); !ok || got.Parent != tt.add.Parent {
					t.Errorf("%+v, %v", got, ok)
				}
				return
			}
			if sandbox.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v %v, want %v %s", sandbox.KindOf(err), err, tt.kind, tt.want)
			}
			if e, _ := err.(*sandbox.Error); e.Hint != tt.hint {
				t.Errorf("hint %q, want %q", e.Hint, tt.hint)
			}
		})
	}
}

func TestDelegateByState(t *testing.T) {
	for state, want := range map[record.State]string{
		record.Live: "", record.Delivering: "", record.Reserved: "pod `root` is still being started, and can't delegate scope", record.Ending: "pod `root` is being stopped, and can't delegate scope",
	} {
		p := pod("root", "", rw("/w"))
		p.State = state
		_, err := mustTree(t, p).Delegate(pod("c", "root", rw("/w/c")))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", state, err, want)
		}
	}
}

func TestDelegateBounds(t *testing.T) {
	end := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	p := pod("root", "", rw("/w"))
	p.Bounds = scope.Bounds{Secrets: []string{"token"}, Limits: api.Limits{Memory: 100}, Until: end}
	tr := mustTree(t, p)
	c := pod("c", "root", rw("/w/c"))
	change, err := tr.Delegate(c)
	if err != nil {
		t.Fatal(err)
	}
	if got := change.Put[0].Bounds; got.Limits.Memory != 100 || !got.Until.Equal(end) || len(got.Secrets) != 0 {
		t.Errorf("a child that asks for nothing has %+v", got)
	}
	c.Bounds = scope.Bounds{Secrets: []string{"key"}, Limits: api.Limits{Memory: 101}}
	const want = "more is asked for than spawner `root` has: secrets: the parent has no secret \"key\"; it has [\"token\"]; memory: 101, where the parent has 100"
	if _, err = tr.Delegate(c); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestInstall is the table of conflicts: who else may write, and what restoring a parent
// beside its children may.
func TestInstall(t *testing.T) {
	denying := func(p record.Pod, deny ...scope.Rule) record.Pod {
		p.Deny = deny
		return p
	}
	elsewhere := pod("p", "", rw("/w"))
	elsewhere.Workspace = "another"
	for _, tt := range []struct {
		name string
		tree *tree.Tree
		add  record.Pod
		want string
	}{
		{"free", family(t), pod("p", "", rw("/p")), ""},
		{"read-where-others-write", family(t), pod("p", "", ro("/w")), ""},
		{"write-where-others-read", family(t), pod("p", "", rw("/doc")), ""},
		{"another-workspace", family(t), elsewhere, ""},
		{"the-owner-is-the-deepest", family(t), pod("p", "", rw("/w/a/x/y")), "requested scope `/w/a/x/y` conflicts with pod `x` rule `/w/a/x`"},
		{"the-child", family(t), pod("p", "", rw("/w/b")), "requested scope `/w/b` conflicts with pod `b` rule `/w/b`"},
		{"the-parent", family(t), pod("p", "", rw("/w/free")), "requested scope `/w/free` conflicts with pod `root` rule `/w`"},
		{"above-all", family(t), pod("p", "", rw("/")), "conflicts with pod"},
		{"name", family(t), pod("root", "", rw("/p")), "pod name `root` is already registered"},
		{"restored-beside-its-child", mustTree(t, pod("a", "", rw("/w/a"))), denying(pod("p", "", rw("/w")), rw("/w/a")), ""},
		{"restored-and-denied-more", mustTree(t, pod("a", "", rw("/w/a/b"))), denying(pod("p", "", rw("/w")), rw("/w/a")), ""},
		{"restored-and-denied-too-little", mustTree(t, pod("a", "", rw("/w/a"))), denying(pod("p", "", rw("/w")), rw("/w/a/b")), "conflicts with pod `a` rule `/w/a`"},
		{"restored-beside-two-and-denied-one", mustTree(t, pod("a", "", rw("/w/a")), pod("b", "", rw("/w/b"))), denying(pod("p", "", rw("/w")), rw("/w/a")), "conflicts with pod `b` rule `/w/b`"},
		{"beside-one-that-denies-itself", mustTree(t, denying(pod("p", "", rw("/w")), rw("/w/a"))), pod("a", "", rw("/w/a/b")), ""},
		{"beside-one-that-denies-itself-reading", mustTree(t, denying(pod("p", "", rw("/w")), ro("/w/a"))), pod("a", "", rw("/w/a")), ""},
		{"what-was-given-away-comes-back", mustTree(t, pod("p", "", rw("/w")), pod("c", "p", rw("/w"))), pod("q", "", rw("/w/x")), "conflicts with pod `c` rule `/w`"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.tree.Install(tt.add)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if err != nil && sandbox.KindOf(err) != sandbox.Conflict {
				t.Errorf("kind %v", sandbox.KindOf(err))
			}
		})
	}
}

func TestEffective(t *testing.T) {
	tr := family(t)
	for _, tt := range []struct {
		pod, path string
		want      scope.Permission
	}{
		{"root", "/w/f", scope.Write},
		{"root", "/w/a/f", scope.Read}, // write is gone, read is kept
		{"root", "/w/a/x/f", scope.Read},
		{"a", "/w/a/f", scope.Write},
		{"a", "/w/a/x/f", scope.Read},
		{"x", "/w/a/x/f", scope.Write},
		{"x", "/w/a/f", scope.None},
	} {
		if got := tr.Effective(tt.pod).At(tt.path); got != tt.want {
			t.Errorf("%s at %s: %v, want %v", tt.pod, tt.path, got, tt.want)
		}
	}
}

// TestRemove: children are the parent's of who goes, or nobody's, and who is left has what they
// don't have.
func TestRemove(t *testing.T) {
	tr := family(t)
	remove := func(name string, affected ...string) {
		t.Helper()
		c, err := tr.Remove(name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Affected, affected) {
			t.Errorf("%s: affected %q, want %q", name, c.Affected, affected)
		}
		tr.Apply(c)
	}
	remove("a", "root")
	if x, _ := tr.Find("x"); x.Parent != "root" {
		t.Errorf("the grandchild is %q's", x.Parent)
	}
	if got := tr.Effective("root"); got.At("/w/a/f") != scope.Write || got.At("/w/a/x/f") != scope.Read {
		t.Errorf("root has %v", got)
	}
	remove("root")
	if got := tr.Children(""); len(got) != 3 {
		t.Errorf("%d without a parent, want b, other and x", len(got))
	}
	if _, err := tr.Remove("root"); sandbox.KindOf(err) != sandbox.NotFound || err.Error() != "pod `root` is not registered" {
		t.Errorf("a second time: %v", err)
	}
}

func TestDescends(t *testing.T) {
	tr := family(t)
	for _, tt := range []struct {
		name, of string
		want     bool
	}{{"x", "root", true}, {"x", "a", true}, {"a", "root", true}, {"root", "a", false}, {"a", "a", false}, {"b", "a", false}, {"nobody", "root", false}} {
		if got := tr.Descends(tt.name, tt.of); got != tt.want {
			t.Errorf("%s of %s: %v", tt.name, tt.of, got)
		}
	}
}

func TestSegments(t *testing.T) {
	tr := family(t)
	id := procid.ID{PID: 7, StartTime: 8, BootID: "b"}
	for range 2 { // twice is as once
		c, err := tr.Adopt("a", id, "s1")
		if err != nil {
			t.Fatal(err)
		}
		tr.Apply(c)
	}
	if by, ok := tr.HolderOf("s1"); !ok || by.Name != "a" || by.Process != id {
		t.Errorf("%+v, %v", by, ok)
	}
	const held = "session s1 is already held by pod `a` at /run/a/sock"
	if _, err := tr.Adopt("b", id, "s1"); err == nil || err.Error() != held {
		t.Errorf("%v, want %s", err, held)
	}
	if _, err := tr.SetSegment("b", "s1"); err == nil || err.Error() != held {
		t.Errorf("%v, want %s", err, held)
	}
	p := pod("c", "root", rw("/w/c"))
	p.Segment = "s1"
	if _, err := tr.Delegate(p); err == nil || err.Error() != held {
		t.Errorf("%v, want %s", err, held)
	}
	c, err := tr.SetSegment("a", "s2")
	if err != nil {
		t.Fatal(err)
	}
	tr.Apply(c)
	if _, ok := tr.HolderOf("s1"); ok {
		t.Error("the old segment is still held")
	}
	if _, ok := tr.HolderOf(""); ok {
		t.Error("no segment is somebody's")
	}
	if _, err := tr.Adopt("nobody", id, ""); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := tr.SetSegment("nobody", "s"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("%v", err)
	}
}

// TestUpdateKeepsWhatIsDecided: what a pod may do is no caller's to change.
func TestUpdateKeepsWhatIsDecided(t *testing.T) {
	tr := family(t)
	c, err := tr.Update("a", func(p *record.Pod) {
		p.Name, p.Parent, p.Workspace, p.Allow, p.Deny, p.Ref = "z", "b", "v", []scope.Rule{rw("/")}, nil, "ref"
	})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := tr.Find("a")
	want.Ref = "ref"
	if d := cmp.Diff([]record.Pod{want}, c.Put); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if _, err := tr.Update("nobody", func(*record.Pod) {}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("%v", err)
	}
}

func TestNew(t *testing.T) {
	broken := pod("a", "", rw("/w"))
	broken.State = "odd"
	for _, tt := range []struct {
		name string
		pods []record.Pod
		want string
	}{
		{"twice", []record.Pod{pod("a", "", rw("/w")), pod("a", "", rw("/v"))}, "the pod a has two records"},
		{"in-a-circle", []record.Pod{pod("a", "b", rw("/w")), pod("b", "a", rw("/w"))}, "is its own ancestor"},
		{"its-own-parent", []record.Pod{pod("a", "a", rw("/w"))}, "the pod a is its own ancestor"},
		{"no-record", []record.Pod{broken}, `"odd" is no state of a pod`},
	} {
		if _, err := tree.New(tt.pods); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	if p, _ := mustTree(t, pod("a", "lost", rw("/w"))).Find("a"); p.Parent != "" {
		t.Errorf("the parent that is not there is %q", p.Parent)
	}
}

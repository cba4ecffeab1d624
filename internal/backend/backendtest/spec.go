package backendtest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// testSpec holds the wall to what a Spec says of commands.
func testSpec(t *testing.T, s *suite) {
	w := s.open(t)
	t.Run("environment", func(t *testing.T) {
		b := w.begin(t, func(sb *sandbox.Sandbox) {
			sb.Spec.Env = map[string]string{"GREETING": "hello wörld", "EMPTY": "", "LINES": "a\nb", "PATH": "/opt/x:/usr/bin:/bin"}
			sb.Spec.Labels = map[string]string{"team": "red"}
			sb.Spec.Name = "named"
		})
		b.says(t, `printf '%s|%s|%s|%s' "$GREETING" "${EMPTY-unset}" "$LINES" "$PATH"`, "hello wörld||a\nb|/opt/x:/usr/bin:/bin")
	})
	t.Run("user", func(t *testing.T) {
		b := w.begin(t)
		b.says(t, "id -u; id -g; id -G; echo $HOME; echo $USER; touch ~/x && stat -c %u ~/x; umask", "1000\n1000\n1000\n/home/user\nuser\n1000\n0022\n")
	})
	t.Run("root", func(t *testing.T) {
		sb := w.record(func(sb *sandbox.Sandbox) { sb.Spec.User = "root" })
		if !s.Root {
			w.refuses(t, sb)
			return
		}
		t.Cleanup(func() { w.mustRemove(t, sb.ID) })
		b := w.restart(t, sb)
		b.says(t, "id -u; echo $HOME", "0\n/root\n")
		if got := b.sh(t, "user", "id -u"); got != "1000\n" {
			t.Errorf("as user: %q", got)
		}
	})
	t.Run("root-over-writable", func(t *testing.T) {
		dir := tree(t, nil)
		w.refuses(t, w.record(func(sb *sandbox.Sandbox) {
			sb.Spec.User = "root"
			sb.Spec.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceWritable, Source: hostDir(t, dir)}
		}))
	})
	t.Run("network", func(t *testing.T) {
		// A link is made with a gate: without one there is no
		// way to keep the promise, and none is made up.
		sb := w.record(func(sb *sandbox.Sandbox) { sb.Spec.Network = "on" })
		_, err := w.Start(t.Context(), sb)
		wantKind(t, "Start without a link", err, sandbox.Unsupported)
		w.holdsNothingOf(t, sb)
	})
	t.Run("privileges", func(t *testing.T) { privileges(t, w) })
	wantInstances(t, w)
}

// privileges wants commands to have none that they could gain or use.
func privileges(t *testing.T, w *world) {
	b := w.begin(t)
	b.says(t, "grep -E '^(CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status | tr '\\t' ' '",
		"CapPrm: 0000000000000000\nCapEff: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\n")
	b.says(t, "cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id 2>/dev/null && /tmp/id -u; chmod 755 /tmp/id && /tmp/id -u", "1000\n")
	// Nothing was left open for it.
	got := b.sh(t, "", "for f in 0 1 2 3 4 5 6 7 8 9 10 11 12 20 50 100; do test ! -e /proc/$$/fd/$f || echo $f $(readlink /proc/$$/fd/$f); done")
	if strings.Count(got, "\n") != 3 {
		t.Errorf("a command's descriptors: %s", got)
	}
}

// refuses wants a spec to be Unsupported, before anything is made.
func (w *world) refuses(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	_, err := w.Check(t.Context(), sb.Spec)
	wantKind(t, "Check", err, sandbox.Unsupported)
	_, err = w.Start(t.Context(), sb)
	wantKind(t, "Start", err, sandbox.Unsupported)
	w.holdsNothingOf(t, sb)
}

func (w *world) holdsNothingOf(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	ids, err := w.Instances(t.Context())
	if err != nil || slices.Contains(ids, sb.ID) {
		t.Errorf("Instances = %q, %v; want nothing of what was refused", ids, err)
	}
}

// promises is what every wall answers for.
var promises = []string{"isolation", "filesystem", "network", "privileges", "memory", "cpus", "pids", "disk", "inodes"}

// testCheck holds the wall to what it says that it does: each promise is
// kept by something, or not kept for a reason; a limit that is not kept is
// refused where it is asked for by name; and an instance says the same.
func testCheck(t *testing.T, s *suite) {
	w := s.open(t)
	sb := w.record()
	list, err := w.Check(t.Context(), sb.Spec)
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	said := map[string]sandbox.Enforcement{}
	for _, e := range list {
		if _, twice := said[e.Promise]; twice {
			t.Errorf("%s is answered for twice", e.Promise)
		}
		said[e.Promise] = e
		if e.Enforced == (e.Mechanism == "") || e.Enforced == (e.Reason != "") {
			t.Errorf("neither kept by something nor not kept for a reason: %+v", e)
		}
		t.Logf("%-10s enforced=%-5v %s%s", e.Promise, e.Enforced, e.Mechanism, e.Reason)
	}
	if got, want := slices.Sorted(maps.Keys(said)), slices.Sorted(slices.Values(promises)); !slices.Equal(got, want) {
		t.Errorf("answers for %q, want %q", got, want)
	}
	wantInstances(t, w)
	b := w.begin(t)
	for _, e := range b.enforced {
		if e.Enforced != said[e.Promise].Enforced {
			t.Errorf("Start says %+v, Check said %+v", e, said[e.Promise])
		}
	}
	for _, limit := range []string{sandbox.LimitCPUs, sandbox.LimitMemory, sandbox.LimitPIDs, sandbox.LimitDisk, sandbox.LimitInodes} {
		t.Run("explicit-"+limit, func(t *testing.T) {
			asked := w.record(func(sb *sandbox.Sandbox) { sb.Spec.Limits.Explicit = map[string]bool{limit: true} })
			if !said[limit].Enforced {
				w.refuses(t, asked)
				return
			}
			if _, err := w.Check(t.Context(), asked.Spec); err != nil {
				t.Errorf("Check of a limit that is kept: %v", err)
			}
		})
	}
}

package escape

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/long"
)

func weakened(t *testing.T) string {
	t.Helper()
	if weakBin == "" {
		t.Skip("CARBOY_WEAK_BIN is not set: run make escape")
	}
	return weakBin
}

// baselines are the attempts that turn red in the weakened binary as it is,
// by wall and user: none of them can notice anything.
type baselines struct {
	mu  sync.Mutex
	red map[string][]string
}

func (b *baselines) of(r row) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.red[r.wall+"/"+r.user]
}

// take makes every attempt that a row has, or in make test-long every attempt, with nothing
// seeded.
func (b *baselines) take(t *testing.T, bin string) {
	for _, wall := range walls() {
		for _, user := range users(wall) {
			names := noticing(t, wall, user)
			if len(names) == 0 {
				continue
			}
			if long.On() || full {
				names = nil // all that there are
			}
			t.Run(wall+"/"+user, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, setting{bin: bin, wall: wall, user: user})
				for _, got := range tried(t, w.attempt(names...)) {
					judge(t, got)
					if got.Found {
						b.mu.Lock()
						b.red[wall+"/"+user] = append(b.red[wall+"/"+user], got.Probe)
						b.mu.Unlock()
					}
				}
			})
		}
	}
}

// noticing are the attempts of the rows of a wall and a user.
func noticing(t *testing.T, wall, user string) (names []string) {
	t.Helper()
	for _, r := range mine(t) {
		if r.wall == wall && r.user == user {
			names = append(names, r.noticed...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestEveryWeaknessIsNoticed takes away one part of a wall at a time, after it
// has looked at the binary that lacks none.
func TestEveryWeaknessIsNoticed(t *testing.T) {
	bin := weakened(t)
	base := &baselines{red: map[string][]string{}}
	t.Run("none", func(t *testing.T) { base.take(t, bin) })
	var mu sync.Mutex
	lines := map[string]string{}
	t.Cleanup(func() { report(t, lines) })
	for _, r := range mine(t) {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			red := notice(t, bin, r, base.of(r))
			mu.Lock()
			lines[r.name()] = r.tableRow(red)
			mu.Unlock()
			if len(r.with) > 0 {
				t.Run("not by the other alone", func(t *testing.T) { alone(t, bin, r) })
			}
		})
	}
}

// here are the attempts that notice the row's weakness and that this machine's kernel
// answers. Without any the row is skipped.
func (r row) here(t *testing.T) []string {
	t.Helper()
	why := absent(t)
	names := slices.DeleteFunc(slices.Clone(r.noticed), func(n string) bool { _, is := why[n]; return is })
	if len(names) == 0 {
		t.Skipf(notToBeHad+"%q", r.noticed)
	}
	return names
}

// notice runs a row's attempts, or all of them, and returns those that turned
// red and are not so without the weakness.
func notice(t *testing.T, bin string, r row, base []string) (red []string) {
	here := r.here(t)
	w := newWorld(t, setting{bin: bin, wall: r.wall, user: r.user, weaken: r.seeds()})
	names := here
	if full {
		// Without a network of its own a box would call at somebody else's.
		names = slices.DeleteFunc(attemptNames(t), func(n string) bool {
			return n == "metadata" && slices.Contains([]weak.Weakness{weak.NetworkShared, weak.GVisorNetworkHost}, r.weak)
		})
	}
	for _, got := range w.attempt(names...) {
		wanted := slices.Contains(here, got.Probe)
		switch {
		case wanted && slices.Contains(base, got.Probe):
			t.Errorf("%s is red without the weakness", got.Probe)
		case got.Found && !slices.Contains(base, got.Probe):
			red = append(red, got.Probe)
			t.Logf("%s: %s", got.Probe, got.Detail)
		case wanted:
			t.Errorf("%s does not notice: %s%s", got.Probe, got.Detail, got.Error)
		}
	}
	return red
}

// alone seeds all but the weakness itself: what turns red without it does not
// notice it.
func alone(t *testing.T, bin string, r row) {
	w := newWorld(t, setting{bin: bin, wall: r.wall, user: r.user, weaken: r.with})
	for _, got := range w.attempt(r.here(t)...) {
		if got.Found || got.Error != "" {
			t.Errorf("%s does not depend on %s: %s%s", got.Probe, r.weak, got.Detail, got.Error)
		}
	}
}

// report prints the table, and writes it where CARBOY_ESCAPE_TABLE says.
func report(t *testing.T, lines map[string]string) {
	var b strings.Builder
	b.WriteString(tableHead)
	for _, r := range mine(t) {
		if l := lines[r.name()]; l != "" {
			fmt.Fprintln(&b, l)
		}
	}
	have, all := controls(t)
	fmt.Fprintf(&b, "\n%d of %d attempts have a control\n", have, all)
	t.Logf("\n%s", b.String())
	if name := os.Getenv("CARBOY_ESCAPE_TABLE"); name != "" {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestWeakBinarySaysSo holds a weakened binary to telling whoever runs it.
func TestWeakBinarySaysSo(t *testing.T) {
	cmd := exec.Command(weakened(t), "version", "--json")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "-weakened") {
		t.Errorf("version: %s, %v; want one that ends in -weakened", out, err)
	}
	if !strings.Contains(errs.String(), "BUILT TO BE WEAK") {
		t.Errorf("it starts without a warning: %q", errs.String())
	}
}

// TestEveryWeaknessHasARow reads the names from their source.
func TestEveryWeaknessHasARow(t *testing.T) {
	names := seedable(t)
	if len(names) < 40 {
		t.Fatalf("found only %d weaknesses: %q", len(names), names)
	}
	for _, n := range names {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.weak == n }) {
			t.Errorf("%s is in no row", n)
		}
	}
	for _, r := range rows {
		for _, s := range r.seeds() {
			if !slices.Contains(names, s) {
				t.Errorf("%s: there is no weakness %s", r.name(), s)
			}
		}
	}
}

// seedable lists the constants of package weak in doc.go. Those in its other
// files are of the gate: test/e2e has their rows, and sees that none lacks one.
func seedable(t *testing.T) (names []weak.Weakness) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash("../../internal/weak/doc.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != "Weakness" {
			return true
		}
		for _, v := range spec.Values {
			lit, ok := v.(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s is no literal", spec.Names[0])
			}
			s, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, weak.Weakness(s))
		}
		return true
	})
	return names
}

// TestRowsAreSound wants each row once, behind a wall that has its user, with
// attempts that there are and that nothing else in the row explains.
func TestRowsAreSound(t *testing.T) {
	known := attemptNames(t)
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.name()] {
			t.Errorf("%s: twice", r.name())
		}
		seen[r.name()] = true
		if !slices.Contains([]string{gvisor, process}, r.wall) || !slices.Contains(users(r.wall), r.user) {
			t.Errorf("%s: no such wall or user", r.name())
		}
		if len(r.noticed) == 0 {
			t.Errorf("%s: nothing is to notice", r.name())
		}
		for _, n := range r.noticed {
			if !slices.Contains(known, n) {
				t.Errorf("%s: there is no attempt %q", r.name(), n)
			}
		}
	}
}

// attemptNames lists all, inside and outside. Each name is there once.
func attemptNames(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command(filepath.Join(tools, "probe"), "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(out))
	for _, l := range outside {
		names = append(names, l.name)
	}
	slices.Sort(names)
	if once := slices.Compact(slices.Clone(names)); len(once) != len(names) {
		t.Errorf("a name is there twice: %q", names)
	}
	return names
}

// TestBrokenAttemptsCount wants an attempt that can't tell to be an error: the
// probe's own control.
func TestBrokenAttemptsCount(t *testing.T) {
	probe := filepath.Join(tools, "probe")
	if err := exec.Command(probe, "run", "/nonexistent").Run(); err == nil {
		t.Error("a probe without facts says that all is well")
	}
	if out, err := exec.Command(probe, "run", filepath.Join(tools, "file"), "identity").Output(); err == nil {
		t.Errorf("facts that are none are taken: %s", out)
	}
}

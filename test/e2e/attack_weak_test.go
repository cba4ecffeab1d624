package e2e

import (
	"flag"
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

// TestAttacksSucceedWhereWeak takes away what holds attempts, and wants the same attempts to
// get through: in make test all that holds the attempts of a sandbox at once, and what the test
// of one package notices; in make test-long each row by itself.
func TestAttacksSucceedWhereWeak(t *testing.T) {
	if !long.On() {
		for _, b := range attackBoxes {
			t.Run("all/"+b.name, func(t *testing.T) {
				t.Parallel()
				b.succeed(t)
			})
		}
	}
	for _, r := range triedRows() {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			if r.unit != "" {
				unitNotices(t, r)
			} else {
				r.succeeds(t)
			}
		})
	}
}

// triedRows returns the rows that are tried one by one.
func triedRows() []attackRow {
	if long.On() {
		return attackRows
	}
	i := slices.IndexFunc(attackRows, func(r attackRow) bool { return r.unit != "" })
	return append(slices.DeleteFunc(slices.Clone(attackRows), func(r attackRow) bool { return !r.apart }), attackRows[i])
}

// succeed makes all attempts of a sandbox that lacks all that holds any of them.
func (b attackBox) succeed(t *testing.T) {
	var names []string
	var seeds []weak.Weakness
	for _, r := range attackRows {
		if !r.apart && len(r.attempts) > 0 && slices.Contains(b.attempts, r.attempts[0]) {
			names, seeds = append(names, r.attempts...), append(seeds, r.seeds()...)
		}
	}
	slices.Sort(names)
	slices.Sort(seeds)
	all, err := weakened(t, slices.Compact(seeds)).attack(b, slices.Compact(names))
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range all {
		if got.Found == "" {
			t.Errorf("%s gets nowhere: %s", got.Name, got.Error)
		}
		t.Logf("%s: %s", got.Name, got.Found)
	}
}

// succeeds makes a row's attempts without what holds them. Where something else holds them, too,
// they get nowhere while only that is missing.
func (r attackRow) succeeds(t *testing.T) {
	for _, got := range r.attempt(t, r.seeds()) {
		if got.Found == "" {
			t.Errorf("%s gets nowhere: %s", got.Name, got.Error)
		}
		t.Logf("%s: %s", got.Name, got.Found)
	}
	if len(r.with) == 0 {
		return
	}
	t.Run("not by the others alone", func(t *testing.T) {
		for _, got := range r.attempt(t, r.with) {
			if got.Found != "" {
				t.Errorf("%s does not depend on %s: %s", got.Name, r.weak, got.Found)
			}
		}
	})
}

// attempt makes a row's attempts where seeds are missing. A sandbox that is
// not even made is one in which nothing is found.
func (r attackRow) attempt(t *testing.T, seeds []weak.Weakness) []attempted {
	t.Helper()
	s := weakened(t, seeds)
	i := slices.IndexFunc(attackBoxes, func(b attackBox) bool { return slices.Contains(b.attempts, r.attempts[0]) })
	all, err := s.attack(attackBoxes[i], r.attempts)
	if err != nil {
		t.Log(err)
		return []attempted{{Name: r.attempts[0], Error: err.Error()}}
	}
	return all
}

// unitBinaries are test binaries of packages, built to be weak.
var unitBinaries sync.Map // package to func() (string, error)

// unitNotices wants a package's test to fail where a weakness is seeded, and
// not otherwise.
func unitNotices(t *testing.T, r attackRow) {
	if os.Getenv("CARBOY_WEAK_BIN") == "" {
		t.Skip("CARBOY_WEAK_BIN is not set: make weak builds it")
	}
	dir := filepath.FromSlash("../../" + r.unit)
	build, _ := unitBinaries.LoadOrStore(r.unit, sync.OnceValues(func() (string, error) {
		out, err := shared.mkdir("carboy-unit-*")
		if err != nil {
			return "", err
		}
		cmd := exec.Command("go", "test", "-c", "-tags", "weakened", "-o", filepath.Join(out, "test"), ".")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, text)
		}
		return filepath.Join(out, "test"), nil
	}))
	bin, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	run := func(seeded string) ([]byte, error) {
		cmd := exec.Command(bin, "-test.run", "^"+r.test+"$", "-test.v")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CARBOY_WEAKEN="+seeded)
		return cmd.CombinedOutput()
	}
	if out, err := run(""); err != nil || !strings.Contains(string(out), "--- PASS: "+r.test) {
		t.Errorf("%s, with nothing seeded: %v\n%s", r.test, err, tail(out, 2000))
	}
	if out, err := run(string(r.weak)); err == nil || !strings.Contains(string(out), "--- FAIL: "+r.test) {
		t.Errorf("%s does not notice %s: %v\n%s", r.test, r.weak, err, tail(out, 2000))
	}
}

// TestEveryWeaknessOfTheGateHasARow reads the names from their source. Those in
// doc.go are of the walls, and test/escape has their rows.
func TestEveryWeaknessOfTheGateHasARow(t *testing.T) {
	t.Parallel()
	names := weaknesses(t)
	if len(names) < 40 {
		t.Fatalf("found only %d weaknesses: %q", len(names), names)
	}
	for _, n := range names {
		if !slices.ContainsFunc(attackRows, func(r attackRow) bool { return r.weak == n }) {
			t.Errorf("%s is in no row", n)
		}
	}
}

// weaknesses lists the constants of package weak outside of doc.go.
func weaknesses(t *testing.T) (names []weak.Weakness) {
	t.Helper()
	files, err := filepath.Glob(filepath.FromSlash("../../internal/weak/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == "doc.go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != "Weakness" {
				return true
			}
			s, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, weak.Weakness(s))
			return true
		})
	}
	return names
}

// TestEveryAttemptHasARow wants each attempt in one sandbox and in a row.
func TestEveryAttemptHasARow(t *testing.T) {
	t.Parallel()
	dir, err := attackerDir()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "attacker"), "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(out))
	for n := range outsideAttempts {
		known = append(known, n)
	}
	var placed, used []string
	for _, b := range attackBoxes {
		placed = append(placed, b.attempts...)
	}
	for _, r := range attackRows {
		used = append(used, r.attempts...)
	}
	for _, n := range known {
		if !slices.Contains(used, n) && seededElsewhere[n] == "" || !slices.Contains(placed, n) {
			t.Errorf("%s is in no row or no sandbox", n)
		}
	}
	for _, n := range slices.Concat(placed, used) {
		if !slices.Contains(known, n) {
			t.Errorf("there is no attempt %s", n)
		}
	}
}

var updateAttacks = flag.Bool("update-attacks", false, "write the table into docs/threat-model.md")

// TestThreatModelHasTheAttacks compares the document's table with ours.
func TestThreatModelHasTheAttacks(t *testing.T) {
	t.Parallel()
	file := filepath.FromSlash("../../docs/threat-model.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	section := strings.Index(text, "\n## The gate\n")
	if section < 0 {
		t.Fatal("docs/threat-model.md has no section on the gate")
	}
	at := strings.Index(text[section:], "\n| attack |")
	if at < 0 {
		t.Fatal("its section on the gate has no table of attacks")
	}
	from := section + at + 1
	to := from
	for line := range strings.Lines(text[from:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		to += len(line)
	}
	if *updateAttacks {
		if err := os.WriteFile(file, []byte(text[:from]+attackTable()+text[to:]), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text[from:to] != attackTable() {
		t.Errorf("the table of docs/threat-model.md is not that of the rows: go test ./test/e2e -run TheAttacks -update-attacks\nwant:\n%s", attackTable())
	}
}

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bare is a machine with nothing on it, or with one program and some mounts.
type bare struct{ program, mounts string }

func (b bare) has(program string) bool { return program == b.program }
func (b bare) read(string) string      { return b.mounts }
func (bare) mode(string) fs.FileMode   { return 0o600 }

// ran is what go test says of a package with one test, or of a run of that test again.
func ran(pkg, test, action, said string) string {
	of := "pass"
	if action == "fail" {
		of = "fail"
	}
	return lines(
		event{Action: "start", Package: module + pkg},
		event{Action: "run", Package: module + pkg, Test: test},
		event{Action: "output", Package: module + pkg, Test: test, Output: "=== RUN   " + test + "\n"},
		event{Action: "output", Package: module + pkg, Test: test, Output: "    x_test.go:1: " + said + "\n"},
		event{Action: action, Package: module + pkg, Test: test, Elapsed: 1},
		event{Action: of, Package: module + pkg, Elapsed: 2},
	)
}

// nested is a run of a test with subtests a and b; with alone, of one of them.
func nested(alone, a, b string) string {
	of := "pass"
	events := []event{{Action: "start", Package: module + "p"}, {Action: "run", Package: module + "p", Test: "TestN"}}
	for _, sub := range []struct{ name, ends string }{{"a", a}, {"b", b}} {
		if alone != "" && alone != sub.name {
			continue
		}
		if sub.ends == "fail" {
			of = "fail"
		}
		events = append(events, event{Action: "run", Package: module + "p", Test: "TestN/" + sub.name}, event{Action: sub.ends, Package: module + "p", Test: "TestN/" + sub.name})
	}
	return lines(append(events, event{Action: of, Package: module + "p", Test: "TestN"}, event{Action: of, Package: module + "p"})...)
}

func lines(events ...event) string {
	var b strings.Builder
	for _, e := range events {
		raw, _ := json.Marshal(e)
		b.Write(append(raw, '\n'))
	}
	return b.String()
}

func TestJudge(t *testing.T) {
	const ended = `{"Action":"fail"}` + "\n"
	skipped := func(pkg, test, said string) string { return ran(pkg, test, "skip", said) }
	noRoom := skipped("internal/egress/link", "TestMemory", "the race detector needs more than the gate")
	raced := ran("a", "TestA", "fail", "ok")
	raced = strings.Replace(raced, "    x_test.go:1: ok", "WARNING: DATA RACE", 1)
	panics := strings.Replace(ran("a", "TestA", "fail", "ok"), "    x_test.go:1: ok", "panic: oh", 1)
	tests := []struct {
		name, in string
		m        bare
		green    bool
		want     string // a part of what is printed
	}{
		{"passes", ran("a", "TestA", "pass", "quiet"), bare{}, true, "\n1 passed, 0 failed, 0 skipped\n"},
		{"fails", ran("a", "TestA", "fail", "loud") + ended, bare{}, false, "RED:\n  a TestA\n\n0 passed, 1 failed"},
		{"fails-twice", ran("a", "TestA", "fail", "loud") + ran("a", "TestA", "fail", "loud") + ended, bare{}, false, "RED:\n  a TestA\n"},
		{"fails-once", ran("a", "TestA", "fail", "loud") + ran("a", "TestA", "pass", "") + ended, bare{}, true, "flaky: failed, and passed alone:\n  a TestA\n\n1 passed, 0 failed"},
		{"fails-then-skips", ran("a", "FuzzA", "fail", "loud") + ran("a", "FuzzA", "skip", ""), bare{}, false, "a FuzzA: it failed, and was then skipped"},
		{"race", raced + ran("a", "TestA", "pass", ""), bare{}, false, "a TestA: WARNING: DATA RACE (no second try counts)"},
		{"panic", panics + ran("a", "TestA", "pass", ""), bare{}, false, "a TestA: panic: oh (no second try counts)"},
		{"finding", ran("a", "TestA", "fail", finding+"out") + ran("a", "TestA", "pass", ""), bare{}, false, "finding: out (no second try counts)"},
		{"panic-of-a-child", strings.Replace(panics, `"Action":"fail"`, `"Action":"pass"`, 2), bare{}, true, "1 passed"},
		{"time-out", lines(event{Action: "start", Package: module + "a"}, event{Action: "run", Package: module + "a", Test: "TestA"}, event{Action: "output", Package: module + "a", Output: "panic: test timed out after 1s\n"}, event{Action: "fail", Package: module + "a"}), bare{}, false, "a TestA: it did not end"},
		{"outside-of-tests", lines(event{Action: "start", Package: module + "a"}, event{Action: "output", Package: module + "a", Output: "exit status 3\n"}, event{Action: "fail", Package: module + "a"}), bare{}, false, "a: failed outside of its tests: exit status 3"},
		{"subtest-fails-once", nested("", "fail", "pass") + nested("a", "pass", ""), bare{}, true, "flaky: failed, and passed alone:\n  p TestN/a\n\n3 passed, 0 failed"},
		{"subtest-fails", nested("", "fail", "fail") + nested("a", "fail", "") + nested("b", "", "pass"), bare{}, false, "RED:\n  p TestN/a\n\n2 passed, 1 failed"},
		{"held", ran("held", "TestHeld", "fail", "loud") + ran("held", "TestHeld", "fail", "loud") + ran("a", "TestA", "pass", "") + ended, bare{}, true, "in quarantine, and failed:\n  held TestHeld\n\n1 passed, 0 failed"},
		{"held-panics", strings.ReplaceAll(strings.ReplaceAll(panics, "TestA", "TestHeld"), module+"a", module+"held"), bare{}, false, "panic: oh"},
		{"no-disk", skipped("internal/backend/disk", "TestGrow", "no loop devices"), bare{}, false, "internal/backend/disk TestGrow: skipped for no lawful reason"},
		{"no-program", skipped("a", "TestA/java", `exec: "java": executable file not found in $PATH`), bare{}, true, "1  a program that users may lack"},
		{"program-is-there", skipped("a", "TestA/java", `exec: "java": executable file not found in $PATH`), bare{program: "java"}, false, "executable file"},
		{"no-v1", skipped("internal/backend/cgroup", "TestKill/v1-alone", "no version 1 tree"), bare{mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw"}, true, "1  the kernel has cgroup"},
		{"v1-is-there", skipped("internal/backend/cgroup", "TestKill/v1-alone", "no version 1 tree"), bare{mounts: "cgroup /sys/fs/cgroup/pids cgroup rw"}, false, "no version 1"},
		{"twice", ran("a", "TestA", "pass", "tried again: it hung"), bare{}, true, "tried something twice:\n  a TestA\n"},
		{"seed", skipped("a", "FuzzA/seed#0", "means nothing"), bare{}, true, "1  a seed"},
		{"seed-elsewhere", skipped("a", "TestFuzz/seed#0", "means nothing"), bare{}, false, "means nothing"},
		{"never-again", noRoom, bare{}, false, "the race detector"},
		{"again", noRoom + ran("internal/egress/link", "TestMemory", "pass", ""), bare{}, true, "1  run a second time"},
		{"does-not-build", lines(event{Action: "build-output", Output: "x.go:1: bad\n"}, event{Action: "build-fail"}), bare{}, false, "x.go:1: bad"},
		{"go-test-fails", ran("a", "TestA", "pass", "") + ended, bare{}, false, "stage 1 ended with an error"},
		{"torn", lines(event{Action: "output", Package: module + "a", Test: "TestA", Output: "last words\n"}), bare{}, false, "a: its end is missing"},
		{"no-json", "flag provided but not defined\n", bare{}, false, "no test ran"},
		{"nothing", "", bare{}, false, "no test ran"},
	}
	q := []held{{"held", "TestHeld", "2026-01-01", "it is for this test"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRun()
			if err := r.read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			v := judge(r, tt.m, q)
			var out strings.Builder
			v.print(&out)
			if v.green() != tt.green || !strings.Contains(out.String(), tt.want) {
				t.Errorf("green %v, with\n%swant %v, with\n%s", v.green(), out.String(), tt.green, tt.want)
			}
		})
	}
}

// TestReasonsStand compiles the patterns, and wants a reason of each.
func TestReasonsStand(t *testing.T) {
	for _, l := range list {
		excuse(skip{module + l.pkg, "TestX", ""}, bare{})
		if l.why == "" || l.pkg == "" && l.test == "" && l.said == "" {
			t.Errorf("%+v excuses without a reason, or everything", l)
		}
	}
}

// TestQuarantine keeps it small, and its names true.
func TestQuarantine(t *testing.T) {
	if len(quarantine) > mostHeld {
		t.Errorf("%d tests are in quarantine, %d may be: mend one", len(quarantine), mostHeld)
	}
	for _, h := range quarantine {
		files, _ := filepath.Glob(filepath.Join("../..", h.pkg, "*_test.go"))
		var source strings.Builder
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(b)
		}
		if name := firstName(h.test); !strings.Contains(source.String(), "\nfunc "+name+"(") || h.since == "" || h.why == "" {
			t.Errorf("%s %s: there is no such test, or no date or reason", h.pkg, h.test)
		}
	}
}

// TestRecord writes what the next run is compared with.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	v := &verdict{passed: 3, flaky: []flaky{{"p", "TestA", "said"}}}
	if err := v.record(dir, 0); err != nil {
		t.Fatal(err)
	}
	var r record
	var flakes []flaky
	for name, into := range map[string]any{"test.json": &r, "flaky.json": &flakes} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if r.Passed != 3 || r.Flaky != 1 || !r.Green || len(flakes) != 1 || flakes[0].Said != "said" {
		t.Errorf("got %+v and %+v", r, flakes)
	}
}

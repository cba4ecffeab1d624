package main

import (
	"io/fs"
	"strings"
	"testing"
)

// bare is a machine with nothing on it, or with one program and some mounts.
type bare struct{ program, mounts string }

func (b bare) has(program string) bool { return program == b.program }
func (b bare) read(string) string      { return b.mounts }
func (bare) mode(string) fs.FileMode   { return 0o600 }

// ended is what go test says of a test, and then of its package.
func ended(pkg, test, action, said string) string {
	quoted := strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(said)
	line := `{"Package":"` + module + pkg + `",`
	last, of := "ok", "pass"
	if action == "fail" {
		last, of = "FAIL", "fail"
	}
	return line + `"Action":"output","Test":"` + test + `","Output":"=== RUN ` + test + `\n"}` + "\n" +
		line + `"Action":"output","Test":"` + test + `","Output":"` + quoted + `"}` + "\n" +
		line + `"Action":"` + action + `","Test":"` + test + `"}` + "\n" +
		line + `"Action":"output","Output":"` + last + ` ` + pkg + `\n"}` + "\n" +
		line + `"Action":"` + of + `"}` + "\n"
}

func TestReport(t *testing.T) {
	skipped := func(pkg, test, said string) string { return ended(pkg, test, "skip", "    x_test.go:1: "+said+"\n") }
	noRoom := skipped("internal/egress/link", "TestMemory", "the race detector needs more than the gate")
	tests := []struct {
		name, in string
		m        bare
		well     bool
		want     string // all of it, or a part
	}{
		{"passes", ended("a", "TestA", "pass", "    quiet\n"), bare{}, true, "ok a\n1 tests ran, 0 skipped, 0 tried again\n"},
		{"fails", ended("a", "TestA", "fail", "    loud\n"), bare{}, false, "    loud\nFAIL a\n1 tests ran, 0 skipped, 0 tried again\n"},
		{"no-disk", skipped("internal/backend/disk", "TestGrow", "no loop devices"), bare{}, false, "internal/backend/disk TestGrow: x_test.go:1: no loop devices"},
		{"no-cgroup", skipped("internal/backend/cgroup", "TestKill/as-found", "no cgroup is usable"), bare{}, false, "FAIL: 1 skipped for no lawful reason"},
		{"no-program", skipped("a", "TestA/java", `exec: "java": executable file not found in $PATH`), bare{}, true, "1  a program that users may lack"},
		{"program-is-there", skipped("a", "TestA/java", `exec: "java": executable file not found in $PATH`), bare{program: "java"}, false, "executable file"},
		{"no-v1", skipped("internal/backend/cgroup", "TestKill/v1-alone", "no version 1 tree"), bare{mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw"}, true, "1  the kernel has cgroup"},
		{"v1-is-there", skipped("internal/backend/cgroup", "TestKill/v1-alone", "no version 1 tree"), bare{mounts: "cgroup /sys/fs/cgroup/pids cgroup rw"}, false, "no version 1"},
		{"twice", ended("a", "TestA", "pass", "    x_test.go:1: tried again: it hung\n"), bare{}, true, "tried again: " + module + "a TestA\n1 tests ran, 0 skipped, 1 tried again\n"},
		{"seed", skipped("a", "FuzzA/seed#0", "means nothing"), bare{}, true, "1  a seed"},
		{"seed-elsewhere", skipped("a", "TestFuzz/seed#0", "means nothing"), bare{}, false, "means nothing"},
		{"never-again", noRoom, bare{}, false, "the race detector"},
		{"again", noRoom + ended("internal/egress/link", "TestMemory", "pass", ""), bare{}, true, "1 tests ran, 1 skipped, 0 tried again\n    1  run a second time"},
		{"does-not-build", `{"Action":"build-output","Output":"x.go:1: bad\n"}` + "\n" + `{"Action":"build-fail"}` + "\n", bare{}, false, "x.go:1: bad\n0 tests ran, 0 skipped, 0 tried again\n"},
		{"go-test-fails", `{"Action":"fail"}` + "\n", bare{}, false, "0 tests ran, 0 skipped, 0 tried again\n"},
		{"torn", `{"Action":"output","Package":"a","Test":"TestA","Output":"last words\n"}` + "\n", bare{}, false, "FAIL\ta: its end is missing\nlast words\n"},
		{"no-json", "flag provided but not defined\n", bare{}, false, "flag provided but not defined\n"},
		{"nothing", "", bare{}, false, "0 tests ran"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if well := run(strings.NewReader(tt.in), &out, tt.m, false); well != tt.well || !strings.Contains(out.String(), tt.want) {
				t.Errorf("%v, with\n%swant %v, with\n%s", well, out.String(), tt.well, tt.want)
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

package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/bench/trace"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// tracedRun is a run of a command with a helper that was made of a daemon.
func tracedRun(whole, helper float64, name string, guess bool) trace.Run {
	end := whole - 1
	return trace.Run{
		Whole: whole,
		Processes: []trace.Process{
			{PID: 1, Name: "carboy", Begin: -1, End: &whole, CPU: 2, Wait: 1, Block: whole - 2},
			{PID: 2, Name: "daemon", Before: true, Begin: 1, CPU: helper, Block: 1},
			{PID: 3, Parent: 2, Name: name, File: "/proc/self/exe", Guess: guess, Begin: 2, End: &end, CPU: helper},
			{PID: 4, Parent: 2, Name: "true", File: "/bin/true", Begin: 3, CPU: 0.5},
		},
		Phases: []trace.Phase{{Name: "all of it", Took: whole}},
		Path:   []trace.Step{{Name: name, Does: trace.Runs, Took: whole / 2}},
	}
}

// TestSummarizeTrace: an outlier moves no median, a name that could not be read is
// that of the other runs, and a step that a run lacks took nothing there.
func TestSummarizeTrace(t *testing.T) {
	runs := []trace.Run{
		tracedRun(10, 4, "exe", true), tracedRun(12, 4, "helper", false), tracedRun(900, 800, "helper", false),
	}
	c := summarizeTrace(runs)
	if c.Whole.Median != 12 || c.Whole.N != 3 {
		t.Errorf("whole: %+v", c.Whole)
	}
	type row struct {
		name   string
		n, end int
		cpu    float64
		before bool
	}
	var got []row
	for _, r := range c.Roles {
		got = append(got, row{r.Name, r.CPU.N, r.End.N, r.CPU.Median, r.Before})
	}
	want := []row{{"carboy", 3, 3, 2, false}, {"daemon", 3, 0, 4, true}, {"helper", 3, 3, 4, false}, {"true", 3, 0, 0.5, false}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
	if len(c.Path) != 2 || c.Path[0].Name != "helper" || c.Path[0].Took.Median != 6 || c.Path[1].Took.N != 3 || c.Path[1].Took.Median != 0 {
		t.Errorf("path: %+v", c.Path)
	}
}

func TestTraceTable(t *testing.T) {
	r := &TraceReport{Version: "1.2.3", Rounds: 3, Cut: "interrupted", Leftover: []string{"/tmp/x"}}
	c := summarizeTrace([]trace.Run{tracedRun(10, 4, "\x1b[2J", false)})
	c.Name, c.Title, c.Failures, c.Reasons = "run-x", "a title", 1, []string{"no"}
	r.Cases = []TraceCase{c, {Name: "none", Title: "nothing", Failures: 4, Reasons: []string{"never"}}}
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a terminal would obey what a program said")
	}
	golden(t, "trace.txt", b.Bytes())
}

func TestRunTraceRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"rounds": {Dir: t.TempDir(), Rounds: -1},
		"only":   {Dir: t.TempDir(), Only: []string{"nothing"}},
	} {
		kind := sandbox.KindOf(func() error { _, err := RunTrace(t.Context(), o); return err }())
		// Without trace events, that is said first of what is otherwise right.
		if kind != sandbox.Invalid && (name == "rounds" || kind != sandbox.Denied && kind != sandbox.Unsupported) {
			t.Errorf("%s: %v", name, kind)
		}
	}
}

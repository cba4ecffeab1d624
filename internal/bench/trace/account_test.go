package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// story is a command (20) that asks a daemon (10, which was there before), which
// has a child (30) made and executed, waits for it, and answers. Times are in ms.
var story = strings.Join([]string{
	"bench-5 [000] ..... 1.000: task_newtask: pid=20 comm=bench clone_flags=4100 oom_score_adj=0",
	"bench-5 [000] d..2. 1.000: sched_wakeup_new: comm=bench pid=20 prio=120 target_cpu=000",
	"bench-5 [000] d..2. 1.001: sched_switch: prev_comm=bench prev_pid=5 prev_prio=120 prev_state=D ==> next_comm=bench next_pid=20 next_prio=120",
	"carboy-20 [000] ..... 1.002: sched_process_exec: filename=/opt/carboy pid=20 old_pid=20",
	"carboy-20 [000] d..2. 1.005: sched_waking: comm=daemon pid=10 prio=120 target_cpu=001",
	"<idle>-0 [001] d..2. 1.005: sched_wakeup: comm=daemon pid=10 prio=120 target_cpu=001",
	"<idle>-0 [001] d..2. 1.006: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=daemon next_pid=10 next_prio=120",
	"carboy-20 [000] d..2. 1.007: sched_switch: prev_comm=carboy prev_pid=20 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120",
	"daemon-10 [001] ..... 1.009: task_newtask: pid=30 comm=daemon clone_flags=11 oom_score_adj=0",
	"daemon-10 [001] d..2. 1.010: sched_switch: prev_comm=daemon prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=daemon next_pid=30 next_prio=120",
	"true-30 [001] ..... 1.012: sched_process_exec: filename=/bin/true pid=30 old_pid=30",
	"true-30 [001] ..... 1.014: sched_process_exit: comm=true pid=30 prio=120 group_dead=true",
	"true-30 [001] d..2. 1.015: sched_waking: comm=daemon pid=10 prio=120 target_cpu=001",
	"true-30 [001] d..2. 1.015: sched_wakeup: comm=daemon pid=10 prio=120 target_cpu=001",
	"true-30 [001] d..2. 1.016: sched_switch: prev_comm=true prev_pid=30 prev_prio=120 prev_state=Z ==> next_comm=daemon next_pid=10 next_prio=120",
	"daemon-10 [001] d..2. 1.018: sched_switch: prev_comm=daemon prev_pid=10 prev_prio=120 prev_state=D ==> next_comm=swapper/1 next_pid=0 next_prio=120",
	"jbd2-77 [001] d..2. 1.022: sched_waking: comm=daemon pid=10 prio=120 target_cpu=001",
	"jbd2-77 [001] d..2. 1.022: sched_wakeup: comm=daemon pid=10 prio=120 target_cpu=001",
	"jbd2-77 [001] d..2. 1.022: sched_switch: prev_comm=jbd2 prev_pid=77 prev_prio=120 prev_state=S ==> next_comm=daemon next_pid=10 next_prio=120",
	"daemon-10 [001] d..2. 1.023: sched_waking: comm=carboy pid=20 prio=120 target_cpu=000",
	"daemon-10 [001] d..2. 1.023: sched_wakeup: comm=carboy pid=20 prio=120 target_cpu=000",
	"<idle>-0 [000] d..2. 1.025: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=carboy next_pid=20 next_prio=120",
	"carboy-20 [000] ..... 1.026: sched_process_exit: comm=carboy pid=20 prio=120 group_dead=true",
	"carboy-20 [000] d..2. 1.027: sched_switch: prev_comm=carboy prev_pid=20 prev_prio=120 prev_state=Z ==> next_comm=bench next_pid=5 next_prio=120",
}, "\n") + "\n"

func storyKnown() Known {
	return Known{Caller: 5, Tasks: map[int]int{10: 10, 11: 10}, Names: map[int]string{10: "/usr/bin/carboy-daemon", 30: "true"}}
}

func accountOf(t *testing.T, text string) (Run, error) {
	t.Helper()
	p, err := Parse(strings.NewReader(text))
	if err != nil || p.Unread > 0 {
		t.Fatalf("%d lines mean nothing, %v", p.Unread, err)
	}
	return Account(p.Events, storyKnown())
}

func TestAccount(t *testing.T) {
	got, err := accountOf(t, story)
	if err != nil {
		t.Fatal(err)
	}
	end := func(x float64) *float64 { return &x }
	want := Run{
		Whole: 25,
		Processes: []Process{
			{PID: 20, Name: "carboy", File: "/opt/carboy", Guess: true, Tasks: 1, Begin: -2, End: end(25), CPU: 8, Wait: 3, Block: 16},
			{PID: 10, Before: true, Name: "carboy-daemon", Tasks: 1, Begin: 3, CPU: 4 + 2 + 5, Wait: 1 + 1, Block: 5 + 4},
			{PID: 30, Parent: 10, Name: "true", File: "/bin/true", Tasks: 1, Begin: 7, End: end(14), CPU: 6, Wait: 1},
		},
		Phases: []Phase{
			{"fork to exec", 2, 0, 0, 0},
			{"until the command line has asked", 3, 3, 0, 0},
			{"until the first process is made", 4, 3, 1, 0},
			{"until the last is made or executed", 3, 2, 1, 0},
			{"until the last of them has ended", 4, 3, 1, 0},
			{"until the last answer", 7, 3, 0, 4},
			{"until the command line's exit", 4, 2, 2, 0},
		},
		Path: []Step{
			{Name: "carboy", Does: Runs, Took: 2 + 3},
			{Name: "carboy-daemon", Does: Runs, Took: 1 + 2 + 3},
			{Name: "true", Does: Runs, Took: 5},
			{Name: "carboy-daemon", Does: Blocked, By: "jbd2", Deep: true, Took: 4},
			{Name: "carboy", Does: Waits, Took: 2},
			{Name: "carboy-daemon", Does: Waits, Took: 1 + 1},
			{Name: "true", Does: Waits, Took: 1},
		},
	}
	byName := cmpopts.SortSlices(func(a, b Step) bool { return a.Name+a.Does < b.Name+b.Does })
	way := ""
	for _, l := range got.Way {
		way += fmt.Sprintf("%.0f %s %s\n", l.Begin, l.Name, l.Does)
	}
	if want := "0 carboy runs\n3 carboy-daemon waits\n4 carboy-daemon runs\n7 true waits\n8 true runs\n" +
		"13 carboy-daemon waits\n14 carboy-daemon runs\n16 carboy-daemon blocked\n20 carboy-daemon runs\n21 carboy waits\n23 carboy runs\n"; way != want {
		t.Errorf("the way is\n%swant\n%s", way, want)
	}
	got.Way = nil
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6), byName); diff != "" {
		t.Error(diff)
	}
	if !slices.IsSortedFunc(got.Path, func(a, b Step) int { return int(1000 * (b.Took - a.Took)) }) {
		t.Errorf("the most is not first: %+v", got.Path)
	}
}

// TestAccountIsOfTheCommand: what the caller forks only to see whether it can, as
// Go does before its first command, is neither the command nor in the table.
func TestAccountIsOfTheCommand(t *testing.T) {
	probe := strings.Join([]string{
		"bench-5 [000] ..... 0.990: task_newtask: pid=19 comm=bench clone_flags=4100 oom_score_adj=0",
		"bench-19 [000] ..... 0.991: sched_process_exit: comm=bench pid=19 prio=120",
		"bench-19 [000] d..2. 0.992: sched_switch: prev_comm=bench prev_pid=19 prev_prio=120 prev_state=X ==> next_comm=bench next_pid=5 next_prio=120",
	}, "\n") + "\n"
	want, err := accountOf(t, story)
	if err != nil {
		t.Fatal(err)
	}
	got, err := accountOf(t, probe+story)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAccountRefuses(t *testing.T) {
	lines := strings.SplitAfter(story, "\n")
	without := func(part string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.Contains(l, part) }), "")
	}
	for name, tt := range map[string]struct{ text, want string }{
		"nothing": {"", "start is not in the trace"},
		"no-fork": {without("pid=20 comm=bench clone"), "start is not in the trace"},
		"no-exec": {without("/opt/carboy"), "start is not in the trace"},
		"no-end":  {strings.Join(lines[:len(lines)-3], ""), "end is not in the trace"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := accountOf(t, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestNames holds what a process goes by that has executed nothing, or itself.
func TestNames(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, want string }{
		"fork": {"/bin/true pid=30 old_pid=30", "/bin/true pid=31 old_pid=31", "carboy-daemon (fork)"},
		"self": {"/bin/true pid=30", "/proc/self/exe pid=30", "carboy-daemon (exe)"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(strings.NewReader(strings.Replace(story, tt.from, tt.to, 1)))
			if err != nil {
				t.Fatal(err)
			}
			known := storyKnown()
			delete(known.Names, 30)
			run, err := Account(p.Events, known)
			if err != nil {
				t.Fatal(err)
			}
			if got := run.Processes[2].Name; got != tt.want {
				t.Errorf("it is called %q, want %q", got, tt.want)
			}
		})
	}
}

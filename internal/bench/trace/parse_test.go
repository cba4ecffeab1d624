package trace

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// prev is the beginning of a line of a switch, up to the name of what left.
const prev = "             sh-12      [001] d..2.  1014.680806: sched_switch: prev_comm="

func TestParseLine(t *testing.T) {
	at := 1014*time.Second + 680806*time.Microsecond
	base := Event{At: at, Task: 12, By: "sh"}
	with := func(f func(e *Event)) Event {
		e := base
		f(&e)
		return e
	}
	switched := func(f func(e *Event)) Event {
		return with(func(e *Event) {
			e.Kind, e.PID, e.Next = Switch, 12, 13
			f(e)
		})
	}
	const head = "sh-12      [001] .....  1014.680806: "
	tests := []struct {
		name, line string
		want       Event
		bad        bool
	}{
		{"switch", prev + "sh prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=x next_pid=13 next_prio=120", switched(func(*Event) {}), false},
		{"preempted", prev + "sh prev_pid=12 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=13 next_prio=120", switched(func(e *Event) { e.Ready = true }), false},
		{"disk", prev + "sh prev_pid=12 prev_prio=-1 prev_state=D ==> next_comm=x next_pid=13 next_prio=0", switched(func(e *Event) { e.Deep = true }), false},
		{"dead", prev + "sh prev_pid=12 prev_prio=120 prev_state=Z ==> next_comm=x next_pid=13 next_prio=0", switched(func(e *Event) { e.Dead = true }), false},
		{"empty-names", prev + " prev_pid=12 prev_prio=120 prev_state=S ==> next_comm= next_pid=13 next_prio=120", switched(func(*Event) {}), false},
		{"arrow-in-name", prev + " ==> next_comm= prev_pid=12 prev_prio=120 prev_state=S ==> next_comm= ==> next_comm= next_pid=13 next_prio=120", switched(func(*Event) {}), false},
		{"pid-in-name", prev + "a prev_pid=99 prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=b next_pid=98 next_pid=13 next_prio=120", switched(func(*Event) {}), false},
		{"long-name", prev + strings.Repeat("x", 16) + " prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=x next_pid=13 next_prio=120", Event{}, true},
		{"cut-switch", prev + "sh prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=x next_pid=13", Event{}, true},
		{"more", prev + "sh prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=x next_pid=13 next_prio=120 9", Event{}, true},
		{"process", head + "task_newtask: pid=13 comm=sh clone_flags=1200000 oom_score_adj=0", with(func(e *Event) { e.Kind, e.PID = Fork, 13 }), false},
		{"vfork", head + "task_newtask: pid=13 comm=sh clone_flags=4100 oom_score_adj=-1000", with(func(e *Event) { e.Kind, e.PID = Fork, 13 }), false},
		{"thread", head + "task_newtask: pid=13 comm=sh clone_flags=d0f00 oom_score_adj=0", with(func(e *Event) { e.Kind, e.PID, e.Shares = Fork, 13, true }), false},
		{"flags", head + "task_newtask: pid=13 comm=sh clone_flags=fffffffffffffffff oom_score_adj=0", Event{}, true},
		{"exec", head + "sched_process_exec: filename=/bin/true pid=12 old_pid=14", with(func(e *Event) { e.Kind, e.PID, e.OldPID, e.File = Exec, 12, 14, "/bin/true" }), false},
		{"exec-imitates", head + "sched_process_exec: filename=/x pid=1 old_pid=1 pid=12 old_pid=14", with(func(e *Event) { e.Kind, e.PID, e.OldPID, e.File = Exec, 12, 14, "/x pid=1 old_pid=1" }), false},
		{"exit", head + "sched_process_exit: comm=a b pid=12 prio=120", with(func(e *Event) { e.Kind, e.PID = Exit, 12 }), false},
		{"exit-of-new-kernels", head + "sched_process_exit: comm=sh pid=12 prio=120 group_dead=true", with(func(e *Event) { e.Kind, e.PID = Exit, 12 }), false},
		{"waking", head + "sched_waking: comm=[x] pid=13 prio=120 target_cpu=001", with(func(e *Event) { e.Kind, e.PID = Waking, 13 }), false},
		{"wakeup", head + "sched_wakeup_new: comm=x pid=13 prio=120 target_cpu=001", with(func(e *Event) { e.Kind, e.PID = Wakeup, 13 }), false},
		{"interrupt", "sh-12 [001] d.h2.  1014.680806: sched_waking: comm=x pid=13 prio=120 target_cpu=001", with(func(e *Event) { e.Kind, e.PID, e.Interrupt = Waking, 13, true }), false},
		{"softirq", "sh-12 [001] d.s2.  1014.680806: sched_waking: comm=x pid=13 prio=120 target_cpu=001", with(func(e *Event) { e.Kind, e.PID, e.Interrupt = Waking, 13, true }), false},
		{"idle", " <idle>-0 [001] d..2.  1014.680806: sched_waking: comm=x pid=13 prio=120 target_cpu=001", Event{At: at, Kind: Waking, By: "<idle>", PID: 13, Interrupt: true}, false},
		{"name-imitates-header", "x-1 [0] d 1.2: -12 [001] .....  1014.680806: sched_waking: comm=x pid=13 prio=120 target_cpu=001", with(func(e *Event) { e.Kind, e.PID, e.By = Waking, 13, "x-1 [0] d 1.2: " }), false},
		{"name-ends-in-dash", "x--12 [001] ..... 1014.680806: sched_waking: comm=x pid=13 prio=120 target_cpu=001", with(func(e *Event) { e.Kind, e.PID, e.By = Waking, 13, "x-" }), false},
		{"other-event", head + "sched_stat_runtime: comm=sh pid=12 runtime=1 [ns]", Event{}, true},
		{"huge-pid", head + "sched_waking: comm=x pid=99999999999 prio=120 target_cpu=001", Event{}, true},
		{"negative-pid", head + "sched_waking: comm=x pid=-1 prio=120 target_cpu=001", Event{}, true},
		{"negative-time", "sh-12 [001] ..... -1014.680806: sched_waking: comm=x pid=13 prio=120 target_cpu=001", Event{}, true},
		{"cut-header", "sh-12 [001] .....", Event{}, true},
		{"empty", "", Event{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseLine(tt.line)
			if (err != nil) != tt.bad {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); !tt.bad && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParse(t *testing.T) {
	const one = " sh-12 [001] ..... 1.5: sched_waking: comm=x pid=13 prio=120 target_cpu=001\n"
	tests := []struct {
		name, text     string
		events, unread int
		lost, bad      bool
	}{
		{"whole", "# tracer: nop\n#\n# entries-in-buffer/entries-written: 2/2   #P:2\n#\n" + one + one, 2, 0, false, false},
		{"lost", "# entries-in-buffer/entries-written: 2/3   #P:2\n" + one, 1, 0, true, false},
		{"lost-on-the-way", "CPU:1 [LOST 12 EVENTS]\n" + one, 1, 0, true, false},
		{"line-break-in-a-name", strings.Replace(one, "comm=x", "comm=a\nb", 1) + one, 1, 2, false, false},
		{"too-long", strings.Repeat("x", maxLine+1), 0, 0, false, true},
		{"nothing", "", 0, 0, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Parse(strings.NewReader(tt.text))
			if (err != nil) != tt.bad || len(p.Events) != tt.events || p.Unread != tt.unread || p.Lost != tt.lost {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

// FuzzParse: whatever a trace says, reading and accounting come to an end, and
// nothing takes less than no time, or more than there was.
func FuzzParse(f *testing.F) {
	f.Add(story)
	f.Add(story[:len(story)/2])
	f.Add(prev + " ==> next_comm= prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=[x] next_pid=13 next_prio=120")
	f.Add("x-1 [0] d 1.2: -12 [001] .....  1014.680806: task_newtask: pid=12 comm=\n clone_flags=100 oom_score_adj=0")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, e := range p.Events {
			if e.Kind == 0 || e.At < 0 || e.PID < 0 || e.Task < 0 || e.Next < 0 {
				t.Fatalf("%+v", e)
			}
		}
		run, err := Account(p.Events, storyKnown())
		if err != nil {
			return
		}
		sum := 0.0
		for _, s := range run.Path {
			sum += s.Took
		}
		for _, x := range run.Processes {
			if x.Name == "" || x.CPU < 0 || x.Wait < 0 || x.Block < 0 {
				t.Errorf("%+v", x)
			}
		}
		if sum > run.Whole+0.001 {
			t.Errorf("a path of %v ms of %v", sum, run.Whole)
		}
	})
}

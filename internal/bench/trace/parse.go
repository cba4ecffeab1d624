package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kind is what an Event is about.
type Kind uint8

// Kinds of events, and what Task and PID are in each.
const (
	Fork   Kind = iota + 1 // Task made PID
	Exec                   // PID executed File; OldPID is the thread that did
	Exit                   // PID begins to end
	Switch                 // PID left its processor to Next
	Waking                 // Task is about to wake PID
	Wakeup                 // PID was made ready
)

// Event is a line of a trace.
type Event struct {
	At        time.Duration // by the kernel's clock
	Kind      Kind
	Task      int    // what ran on the processor that this happened on
	By        string // the kernel's name of Task
	Interrupt bool   // it happened while that was interrupted, and was not its doing
	PID       int    // of a task, which is a thread or a process
	OldPID    int    // of Exec
	Next      int    // of Switch
	Ready     bool   // of Switch: PID could have gone on
	Deep      bool   // of Switch: PID waits in the kernel and can't be disturbed
	Dead      bool   // of Switch: PID never goes on
	Shares    bool   // of Fork: PID shares Task's memory for good
	File      string // of Exec
}

// Flags of clone that say whether memory is shared, and until when.
const (
	cloneVM    = 0x100
	cloneVFork = 0x4000
)

// maxLine bounds a line of a trace: an executed file's name is in it.
const maxLine = 16 << 10

// comm is the name of a task, which chooses it: of whatever bytes.
const comm = `(.{0,15})`

// layouts are what a line begins with, by "", and what is written of the events that are
// read, by their names.
var layouts = sync.OnceValue(func() map[string]*regexp.Regexp {
	wake := `comm=` + comm + ` pid=(\d+) prio=-?\d+ target_cpu=\d+`
	all := map[string]*regexp.Regexp{}
	for name, layout := range map[string]string{
		"":                   ` *` + comm + `-(\d+) +\[\d+\] (\S+) +(\d+)\.(\d{1,9}): (\w+): (.*)`,
		"task_newtask":       `pid=(\d+) comm=` + comm + ` clone_flags=([0-9a-f]+) oom_score_adj=-?\d+`,
		"sched_process_exec": `filename=(.*) pid=(\d+) old_pid=(\d+)`,
		"sched_process_exit": `comm=` + comm + ` pid=(\d+) prio=-?\d+(?: group_dead=\w+)?`, // newer kernels have the last
		"sched_switch":       `prev_comm=` + comm + ` prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> next_comm=` + comm + ` next_pid=(\d+) next_prio=-?\d+`,
		"sched_waking":       wake,
		"sched_wakeup":       wake,
		"sched_wakeup_new":   wake,
	} {
		all[name] = regexp.MustCompile(`^(?s:` + layout + `)$`)
	}
	return all
})

var errLine = errors.New("not a line of a trace")

// Parsed is what was read of a trace.
type Parsed struct {
	Events []Event
	Lost   bool // the kernel had no room for some
	Unread int  // lines that mean nothing
}

// Parse reads the text of a trace. Lines that mean nothing are counted, and are
// no error: tasks choose their names, line breaks included.
func Parse(r io.Reader) (Parsed, error) {
	var p Parsed
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		text := sc.Text()
		switch {
		case strings.TrimSpace(text) == "":
		case strings.HasPrefix(text, "#"):
			p.Lost = p.Lost || dropped(text)
		case strings.HasPrefix(text, "CPU:") && strings.HasSuffix(text, " EVENTS]"):
			p.Lost = true
		default:
			e, err := ParseLine(text)
			if err != nil {
				p.Unread++
				continue
			}
			p.Events = append(p.Events, e)
		}
	}
	return p, sc.Err()
}

// dropped reads the line that says how many of the events are still there.
func dropped(text string) bool {
	var kept, written int
	n, _ := fmt.Sscanf(text, "# entries-in-buffer/entries-written: %d/%d", &kept, &written)
	return n == 2 && kept != written
}

// ParseLine reads a line that has an event.
func ParseLine(text string) (Event, error) {
	head := layouts()[""].FindStringSubmatch(text)
	if head == nil {
		return Event{}, errLine
	}
	e := Event{By: head[1]}
	var err error
	if e.Task, err = number(head[2]); err != nil {
		return Event{}, err
	}
	e.Interrupt = e.Task == 0 || strings.ContainsAny(head[3], "hHsZz")
	if e.At, err = moment(head[4], head[5]); err != nil {
		return Event{}, err
	}
	layout := layouts()[head[6]]
	if layout == nil {
		return Event{}, errLine
	}
	got := layout.FindStringSubmatch(head[7])
	if got == nil {
		return Event{}, errLine
	}
	return e, e.fill(head[6], got)
}

// fill takes over what an event's own part says.
func (e *Event) fill(name string, got []string) error {
	pid := got[2]
	switch name {
	case "task_newtask":
		flags, err := strconv.ParseUint(got[3], 16, 64)
		if err != nil {
			return errLine
		}
		e.Kind, e.Shares, pid = Fork, flags&(cloneVM|cloneVFork) == cloneVM, got[1]
	case "sched_process_exec":
		old, err := number(got[3])
		if err != nil {
			return err
		}
		e.Kind, e.File, e.OldPID = Exec, got[1], old
	case "sched_process_exit":
		e.Kind = Exit
	case "sched_switch":
		next, err := number(got[5])
		if err != nil {
			return err
		}
		e.Kind, e.Next = Switch, next
		e.Ready, e.Deep = strings.HasPrefix(got[3], "R"), strings.HasPrefix(got[3], "D")
		e.Dead = strings.ContainsAny(got[3], "XZ")
	case "sched_waking":
		e.Kind = Waking
	default:
		e.Kind = Wakeup
	}
	var err error
	e.PID, err = number(pid)
	return err
}

// number reads the number of a task.
func number(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0, errLine
	}
	return int(n), nil
}

// moment reads seconds and the digits after the point.
func moment(whole, part string) (time.Duration, error) {
	s, err := strconv.ParseInt(whole, 10, 33)
	if err != nil {
		return 0, errLine
	}
	ns, err := strconv.ParseInt(part+"000000000"[len(part):], 10, 33)
	return time.Duration(s)*time.Second + time.Duration(ns), err
}

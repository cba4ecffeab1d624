package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/bench/trace"
)

// TraceReport is where the time of some commands went.
type TraceReport struct {
	Schema   int         `json:"schema"`
	Version  string      `json:"version"` // of carboy
	Started  time.Time   `json:"started_at"`
	Took     float64     `json:"took_s"`
	Rounds   int         `json:"rounds"`
	Cut      string      `json:"cut,omitempty"` // why it ended before its end
	Machine  Machine     `json:"machine"`
	Cases    []TraceCase `json:"cases"`
	Leftover []string    `json:"leftover,omitempty"` // what could not be taken away
}

// TraceCase is a command that was traced several times.
type TraceCase struct {
	Name     string       `json:"name"`
	Title    string       `json:"title"`
	Whole    Summary      `json:"whole_ms"` // from the command line's exec to its exit
	Roles    []TraceRole  `json:"processes"`
	Phases   []TracePhase `json:"phases"`
	Path     []TraceStep  `json:"path"` // what its end waited for, the most first
	Failures int          `json:"failures"`
	Reasons  []string     `json:"reasons,omitempty"` // of the failures
	Samples  []trace.Run  `json:"samples"`
}

// TraceRole is what processes of one name did, which began as the nth of it.
type TraceRole struct {
	Name   string  `json:"name"`
	Nth    int     `json:"nth"`
	Before bool    `json:"before,omitempty"` // it was there before: its begin is its first event
	Begin  Summary `json:"begin_ms"`         // after the command line's exec
	End    Summary `json:"end_ms"`           // n is how often it had ended by then
	CPU    Summary `json:"cpu_ms"`           // processor time, of all its threads
	Wait   Summary `json:"wait_ms"`          // in which one of its threads was ready, and none ran
	Block  Summary `json:"block_ms"`         // in which none was ready
}

// TracePhase is a part of a run: they follow each other.
type TracePhase struct {
	Name    string  `json:"name"`
	Took    Summary `json:"ms"`
	Runs    Summary `json:"run_ms"` // of the way to the command line's end; see trace.Phase
	Waits   Summary `json:"wait_ms"`
	Blocked Summary `json:"block_ms"`
}

// TraceStep is a part of what a command's end waited for; see trace.Step.
type TraceStep struct {
	Name string  `json:"name"`
	Does string  `json:"does"`
	By   string  `json:"by,omitempty"`
	Deep bool    `json:"deep,omitempty"`
	Took Summary `json:"ms"`
	Part Summary `json:"part"` // of the whole of the same run
}

// leastStep is the part of the whole below which a step is not shown.
const leastStep = 0.01

// WriteTable writes r for a person.
func (r *TraceReport) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "carboy %s\n%s\n", r.Version, r.Machine)
	fmt.Fprintf(&b, "%d rounds after one that does not count; medians, in ms after the command line's exec\n", r.Rounds)
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "\n%s: %s\n", c.Name, c.Title)
		c.table(&b)
	}
	if r.Cut != "" {
		fmt.Fprintf(&b, "\ncut short: %s\n", r.Cut)
	}
	for _, l := range r.Leftover {
		fmt.Fprintf(&b, "\nleft behind: %s\n", l)
	}
	_, err := io.WriteString(w, escapeLines(b.String()))
	return err
}

// table writes what was seen of c.
func (c TraceCase) table(b *strings.Builder) {
	if c.Failures > 0 {
		fmt.Fprintf(b, "  failed, and in no number, %d: %s\n", c.Failures, strings.Join(c.Reasons, "; "))
	}
	if c.Whole.N == 0 {
		return
	}
	fmt.Fprintf(b, "  whole %s ms (%s to %s, n = %d)\n", short(c.Whole.Median), short(c.Whole.Min), short(c.Whole.Max), c.Whole.N)
	rows := [][]string{{"PROCESS", "N", "BEGIN", "END", "CPU", "WAIT", "BLOCKED"}}
	for _, r := range c.Roles {
		name := r.Name
		if r.Nth > 1 {
			name += " #" + strconv.Itoa(r.Nth)
		}
		end := "-"
		if r.End.N > 0 {
			end = short(r.End.Median)
		}
		begin := short(r.Begin.Median)
		if r.Before {
			begin = "before"
		}
		rows = append(rows, []string{name, strconv.Itoa(r.CPU.N), begin, end, short(r.CPU.Median), short(r.Wait.Median), short(r.Block.Median)})
	}
	align(b, rows, 1, 6)
	rows = [][]string{{"PHASE", "MS", "RUNS", "WAITS", "BLOCKED"}}
	for _, p := range c.Phases {
		if p.Took.Max == 0 {
			continue // there is no such thing in this case
		}
		rows = append(rows, []string{p.Name, short(p.Took.Median), short(p.Runs.Median), short(p.Waits.Median), short(p.Blocked.Median)})
	}
	align(b, rows, 1, 4)
	rows = [][]string{{"THE END WAITED FOR", "MS", "PART", "WHICH"}}
	for _, s := range c.Path {
		if s.Part.Median >= leastStep {
			rows = append(rows, []string{s.Name, short(s.Took.Median), strconv.FormatFloat(100*s.Part.Median, 'f', 0, 64) + " %", s.words()})
		}
	}
	align(b, rows, 1, 2)
}

// words say what a step is.
func (s TraceStep) words() string {
	switch s.Does {
	case trace.Runs:
		return "runs"
	case trace.Waits:
		return "waits for a processor"
	}
	if s.Deep {
		return "blocked in the kernel, until " + s.By
	}
	return "blocked, until " + s.By
}

package doctor

import (
	"encoding/json"
	"io"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// State is how a check went.
type State string

// The states.
const (
	OK      State = "ok"
	Weaker  State = "weaker"  // it works, and keeps less than it could
	Missing State = "missing" // it can't be had
	Info    State = "info"    // nothing depends on it
)

// Line is the outcome of one check.
type Line struct {
	ID    string `json:"id"`   // never changes: "user-namespaces"
	Area  string `json:"area"` // heading under which it is shown
	Title string `json:"title"`
	State State  `json:"state"`
	Found string `json:"found"`          // what was tried and came of it
	Why   string `json:"why,omitempty"`  // what its lack costs
	Mend  string `json:"mend,omitempty"` // a command, or what else to do
	// Details are the single things that Found counts; a bug report has none.
	Details []string `json:"details,omitempty"`
}

// Weakness is a promise that a wall does not keep here.
type Weakness struct {
	Promise string `json:"promise"` // as in sandbox.Enforcement
	Reason  string `json:"reason"`
}

// Verdict is what a wall is worth on this machine.
type Verdict struct {
	State  State                 `json:"state"` // OK, Weaker or Missing
	Weaker []Weakness            `json:"weaker,omitempty"`
	Keeps  []sandbox.Enforcement `json:"keeps,omitempty"` // all that the wall says of an instance
	Error  string                `json:"error,omitempty"` // why it can't be used
	Hint   string                `json:"hint,omitempty"`
	Millis int64                 `json:"millis,omitempty"` // from the instance's start to its command's end
}

// Works reports whether instances can be made.
func (v Verdict) Works() bool { return v.State == OK || v.State == Weaker }

// Fact is a setting of the machine that explains others.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Report is all that was found.
type Report struct {
	Version string `json:"version"`
	Kernel  string `json:"kernel"` // release
	OS      string `json:"os"`     // the distribution's own name
	Arch    string `json:"arch"`   // as Go names it
	UID     int    `json:"uid"`
	Root    bool   `json:"root"`
	// Default is the wall of a sandbox that names none.
	Default string             `json:"default"`
	Walls   map[string]Verdict `json:"walls"`
	Lines   []Line             `json:"lines"` // in the order in which they are shown
	Facts   []Fact             `json:"facts"`

	private []hidden
}

// encoded is a report on its way to another program.
type encoded struct {
	Report  Report   `json:"report"`
	Private []hidden `json:"private"`
}

// Encode writes a report for Decode, with what BugReport hides.
func (r Report) Encode(w io.Writer) error {
	return json.NewEncoder(w).Encode(encoded{r, r.private})
}

// Decode reads what Encode wrote.
func Decode(r io.Reader) (Report, error) {
	var t encoded
	err := json.NewDecoder(r).Decode(&t)
	t.Report.private = t.Private
	return t.Report, err
}

// Works reports whether the default wall does.
func (r Report) Works() bool { return r.Walls[r.Default].Works() }

// outcome is a Line without what its check's table says of it.
func outcome(s State, found string) Line { return Line{State: s, Found: found} }

func (l Line) because(why string) Line {
	l.Why = why
	return l
}

func (l Line) mendedBy(mend string) Line {
	l.Mend = mend
	return l
}

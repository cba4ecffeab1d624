// Package record is what is remembered of a pod between two lives of the daemon, and how
// it is written: JSON that is read strictly. It does nothing with it.
//
// What a record does not hold: the task, its answers, and an environment.
package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// State is where a pod is in its life. It is written before it is acted on.
type State string

// The states. A spawn goes from Reserved by Delivering to Live, and a stop by Ending to no
// record. Whoever finds another's Reserved ends what was started, and takes the record away;
// Delivering becomes Live: from then on nothing is undone.
const (
	Reserved   State = "reserved"   // it has its scope, its parent has it no more, and it may have been started
	Delivering State = "delivering" // its socket answered, and its task is on the way
	Live       State = "live"
	Ending     State = "ending" // it is being ended; its scope is still its own
)

// Pod is one pod.
type Pod struct {
	Name   string `json:"name"`
	Owner  string `json:"owner"` // whose it is; names are unique for each
	State  State  `json:"state"`
	Parent string `json:"parent,omitempty"` // who delegated to it; "": nobody, or nobody that is left
	// Workspace is which files its scope's paths are of: pods of others' have nothing to do with it.
	Workspace string       `json:"workspace,omitempty"`
	Allow     []scope.Rule `json:"allow"`          // what it was given; what its children have of that is not taken out
	Deny      []scope.Rule `json:"deny,omitempty"` // what it may not all the same, children apart
	Bounds    scope.Bounds `json:"bounds,omitzero"`
	Socket    string       `json:"socket"`             // where it listens
	Callback  string       `json:"callback,omitempty"` // where its parent does
	Dir       string       `json:"dir,omitempty"`      // its runtime directory
	// Token is drawn for each start: what the start made is known by it, before anybody
	// knows more of it.
	Token   string    `json:"token,omitempty"`
	Process procid.ID `json:"process,omitzero"` // what was started, or adopted it; it says nothing of whether the pod is alive
	Ref     string    `json:"ref,omitempty"`    // what the backend calls what it started
	Segment string    `json:"segment,omitempty"`
	// Program is what it runs, where its backend runs what it is told.
	Program Program `json:"program,omitzero"`
	// Confirmed says that it told that it had taken its task.
	Confirmed bool      `json:"confirmed,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// NativeSocket is where a command that speaks the protocol itself has to listen, inside.
const NativeSocket = "/tmp/carboy-pod.sock"

// Program is what a pod runs.
type Program struct {
	Command []string `json:"command,omitempty"` // at each turn
	Cwd     string   `json:"cwd,omitempty"`     // absolute; "": where its sandbox begins
	// Native says that the command speaks the pods' protocol itself: it is started once, and listens at NativeSocket in its sandbox.
	Native bool `json:"native,omitempty"`
	// MaySpawn has its programs spawn pods by the tools at its gate, as many at once as its budget says.
	MaySpawn bool `json:"may_spawn,omitempty"`
	// Isolation is the wall that it asked for; "": its parent's.
	Isolation string `json:"isolation,omitempty"`
}

// Key is the name of what is kept of a pod: no two that there ever were have the same, unless they are the same sandbox.
func (p Pod) Key() string {
	if p.Token != "" {
		return p.Name + "-" + p.Token
	}
	return p.Name + "-" + p.Ref
}

// Scope is what a pod was given, children not looked at.
func (p Pod) Scope() scope.Scope { return scope.Scope{Allow: p.Allow, Deny: p.Deny} }

// Started reports whether its spawn has come so far that nothing of it is undone.
func (p Pod) Started() bool { return p.State == Delivering || p.State == Live }

// Clone returns a copy that shares nothing that is changed in place.
func (p Pod) Clone() Pod {
	p.Allow, p.Deny = slices.Clone(p.Allow), slices.Clone(p.Deny)
	p.Bounds.Secrets = slices.Clone(p.Bounds.Secrets)
	p.Program.Command = slices.Clone(p.Program.Command)
	return p
}

// maxName bounds names, which become parts of paths.
const maxName = 64

// CheckName refuses a name that is not made of 1 to 64 letters, digits, "-" and "_" of ASCII, of
// which the first is a letter or a digit.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName && name[0] != '-' && name[0] != '_'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%.80q is no name for a pod: it takes 1 to %d letters, digits, - and _, and begins with a letter or a digit", name, maxName)
	}
	return nil
}

// Check refuses a record that no pod can have.
func (p Pod) Check() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if p.Parent != "" {
		if err := CheckName(p.Parent); err != nil {
			return fmt.Errorf("its parent: %w", err)
		}
	}
	switch p.State {
	case Reserved, Delivering, Live, Ending:
	default:
		return fmt.Errorf("%.40q is no state of a pod", p.State)
	}
	_, err := scope.New(p.Allow, p.Deny)
	return err
}

// Marshal writes a record.
func Marshal(p Pod) ([]byte, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("the record of pod %.80q: %w", p.Name, err)
	}
	return json.Marshal(p)
}

// Parse reads what Marshal wrote, and nothing else.
func Parse(b []byte) (Pod, error) {
	var p Pod
	if err := strict.Unmarshal(b, &p); err != nil {
		return Pod{}, err
	}
	return p, p.Check()
}

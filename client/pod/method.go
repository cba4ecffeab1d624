package pod

import (
	"encoding/json"
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// Version is the newest version of the protocol that this package speaks. A pod of another
// one says so by the event hello, before any other; one that says nothing speaks version 1.
const Version = 1

// The methods that have no parameters.
const (
	MethodResume           = "resume"
	MethodCancel           = "cancel" // and discard the turn
	MethodPause            = "pause"
	MethodCompact          = "compact"
	MethodShutdown         = "shutdown"
	MethodListVisiblePods  = "list_visible_pods"
	MethodListPods         = "list_pods"
	MethodListRewindTarget = "list_rewind_targets"
)

// The methods that have parameters: Run, Notify, and so on.
const (
	MethodRun             = "run"
	MethodNotify          = "notify"
	MethodPodEvent        = "pod_event"
	MethodListCompletions = "list_completions"
	MethodInspectPod      = "inspect_pod"
	MethodAttachOrRestore = "attach_or_restore_pod"
	MethodRestorePod      = "restore_pod"
	MethodRegisterPeer    = "register_peer"
	MethodRewindTo        = "rewind_to"
)

// Parameters of methods.
type (
	// Run starts a turn.
	Run struct {
		Input []Segment `json:"input"`
	}
	// Notify tells an agent something between turns.
	Notify struct {
		Message string `json:"message"`
	}
	// ListCompletions asks for names that begin with a prefix.
	ListCompletions struct {
		Kind   string `json:"kind"` // "file", "knowledge" or "workflow"
		Prefix string `json:"prefix"`
	}
	// Named is of inspect_pod, attach_or_restore_pod, restore_pod and register_peer.
	Named struct {
		Name string `json:"name"`
	}
	// RewindTo goes back to an entry, if nothing was added meanwhile.
	RewindTo struct {
		Target              json.RawMessage `json:"target"`
		ExpectedHeadEntries int             `json:"expected_head_entries"`
	}
)

// The kinds of a PodEvent.
const (
	PodTurnEnded         = "turn_ended"
	PodErrored           = "errored"
	PodShutDown          = "shut_down"
	PodScopeSubDelegated = "scope_sub_delegated"
)

// PodEvent is what a child tells its parent. Receivers may get one twice, and late.
type PodEvent struct {
	Kind      string          `json:"kind"`
	PodName   string          `json:"pod_name,omitempty"` // of turn_ended, errored and shut_down
	Message   string          `json:"message,omitempty"`  // of errored
	ParentPod string          `json:"parent_pod,omitempty"`
	SubPod    string          `json:"sub_pod,omitempty"`
	SubSocket string          `json:"sub_socket,omitempty"`
	Scope     json.RawMessage `json:"scope,omitempty"` // of scope_sub_delegated: its rules
}

// Text is the event in words for the parent's agent; "" for a kind that is not known.
func (e PodEvent) Text() string {
	switch e.Kind {
	case PodTurnEnded:
		return fmt.Sprintf("Pod `%s` finished a turn.", e.PodName)
	case PodErrored:
		return fmt.Sprintf("Pod `%s` reported an error: %s", e.PodName, e.Message)
	case PodShutDown:
		return fmt.Sprintf("Pod `%s` has stopped.", e.PodName)
	case PodScopeSubDelegated:
		return fmt.Sprintf("Pod `%s` spawned `%s` and delegated scope to it.", e.ParentPod, e.SubPod)
	}
	return ""
}

// Method is what a pod is asked. Its parameters are as they came: see Params.
type Method struct {
	Name   string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

// NewMethod makes a method; params is nil for one that has none.
func NewMethod(name string, params any) (Method, error) {
	if params == nil {
		return Method{Name: name}, nil
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return Method{}, fmt.Errorf("method %s: %w", name, err)
	}
	return Method{Name: name, Params: raw}, nil
}

// Arguments reads the parameters: as *Run and so on, nil where the method has none. The
// error is an *Error with the code CodeInvalidRequest, also for a method that is not known.
func (m Method) Arguments() (any, error) {
	into, known := arguments(m.Name)
	switch {
	case !known:
		return nil, &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("there is no method %.40q", m.Name)}
	case into == nil:
		return nil, nil
	case len(m.Params) == 0:
		return nil, &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("the method %s needs params", m.Name)}
	}
	if err := strict.Known(m.Params, into); err != nil {
		return nil, &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("the params of %s can't be read: %v", m.Name, err)}
	}
	return into, nil
}

// arguments makes what a method's parameters are read into; nil: it has none.
func arguments(name string) (into any, known bool) {
	switch name {
	case MethodResume, MethodCancel, MethodPause, MethodCompact, MethodShutdown, MethodListVisiblePods, MethodListPods, MethodListRewindTarget:
		return nil, true
	case MethodRun:
		return new(Run), true
	case MethodNotify:
		return new(Notify), true
	case MethodPodEvent:
		return new(PodEvent), true
	case MethodListCompletions:
		return new(ListCompletions), true
	case MethodInspectPod, MethodAttachOrRestore, MethodRestorePod, MethodRegisterPeer:
		return new(Named), true
	case MethodRewindTo:
		return new(RewindTo), true
	}
	return nil, false
}

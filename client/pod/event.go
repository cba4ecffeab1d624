package pod

import (
	"encoding/json"
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// The events. One that is not among them is passed on as it came.
const (
	EventHello             = "hello" // Hello; only of a pod whose version is not 1
	EventSnapshot          = "snapshot"
	EventUserMessage       = "user_message"
	EventSystemItem        = "system_item"
	EventInvokeStart       = "invoke_start"
	EventTurnStart         = "turn_start"
	EventTurnEnd           = "turn_end"
	EventLLMCallStart      = "llm_call_start"
	EventLLMCallEnd        = "llm_call_end"
	EventLLMRetry          = "llm_retry"
	EventLLMContinuation   = "llm_continuation"
	EventTextDelta         = "text_delta"
	EventTextDone          = "text_done"
	EventThinkingStart     = "thinking_start"
	EventThinkingDelta     = "thinking_delta"
	EventThinkingDone      = "thinking_done"
	EventToolCallStart     = "tool_call_start"
	EventToolCallArgsDelta = "tool_call_args_delta"
	EventToolCallDone      = "tool_call_done"
	EventToolResult        = "tool_result"
	EventUsage             = "usage"
	EventRunEnd            = "run_end"
	EventError             = "error"
	EventSegmentRotated    = "segment_rotated"
	EventStatus            = "status"
	EventCompletions       = "completions"
	EventVisiblePods       = "visible_pods"
	EventPodInspection     = "pod_inspection"
	EventPodAttachRestore  = "pod_attach_restore"
	EventAlert             = "alert"
	EventMemoryWorker      = "memory_worker"
	EventCompactStart      = "compact_start"
	EventCompactDone       = "compact_done"
	EventCompactFailed     = "compact_failed"
	EventShutdown          = "shutdown"
)

// InvokeUserSend is the kind of an InvokeStart that a Run caused.
const InvokeUserSend = "user_send"

// The results of a RunEnd.
const (
	RunFinished     = "finished"
	RunPaused       = "paused"
	RunLimitReached = "limit_reached"
	RunRolledBack   = "rolled_back"
)

// What a pod is doing, as the event status says.
const (
	StatusIdle    = "idle"
	StatusRunning = "running"
	StatusPaused  = "paused"
)

// What events say, where that is known.
type (
	// Hello says which version of the protocol a pod speaks.
	Hello struct {
		Version int `json:"version"`
	}
	// Snapshot is the conversation so far, once, first on a connection.
	Snapshot struct {
		Entries  []json.RawMessage `json:"entries"`
		Greeting json.RawMessage   `json:"greeting,omitempty"`
		Status   string            `json:"status"`
	}
	// Status says what the pod is doing.
	Status struct {
		Status string `json:"status"`
	}
	// TextDelta is what the pod says, as it says it.
	TextDelta struct {
		Text string `json:"text"`
	}
	// UserMessage repeats what a Run gave.
	UserMessage struct {
		Segments []Segment `json:"segments"`
	}
	// InvokeStart says what began a turn.
	InvokeStart struct {
		Kind string `json:"kind"`
	}
	// Turn is of turn_start and turn_end; Result of the latter.
	Turn struct {
		Turn   int             `json:"turn"`
		Result json.RawMessage `json:"result,omitempty"`
	}
	// ToolResult is what became of a tool's call.
	ToolResult struct {
		ID      string          `json:"id"`
		Summary string          `json:"summary"`
		Output  json.RawMessage `json:"output,omitempty"`
		IsError bool            `json:"is_error"`
	}
	// RunEnd ends what a Run began.
	RunEnd struct {
		Result string `json:"result"`
	}
)

// Event is what a pod tells. Its data is as it came.
type Event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data,omitempty"`
}

// NewEvent makes an event; data is nil for one that says nothing more.
func NewEvent(name string, data any) (Event, error) {
	if data == nil {
		return Event{Name: name}, nil
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", name, err)
	}
	return Event{Name: name, Data: raw}, nil
}

// Into reads the data of an event, and leaves out what v does not have.
func (e Event) Into(v any) error {
	if err := strict.Known(e.Data, v); err != nil {
		return fmt.Errorf("event %.40q: %w", e.Name, err)
	}
	return nil
}

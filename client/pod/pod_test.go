package pod_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/client/pod"
)

// TestMethodsOnTheWire: each method as others write it.
func TestMethodsOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		line string
		name string
		args any
	}{
		{`{"method":"run","params":{"input":[{"kind":"text","content":"hello"}]}}`, pod.MethodRun, &pod.Run{Input: []pod.Segment{pod.Text("hello")}}},
		{`{"method":"run","params":{"input":[{"kind":"text","content":""}]}}`, pod.MethodRun, &pod.Run{Input: []pod.Segment{pod.Text("")}}},
		{`{"method":"notify","params":{"message":"m"}}`, pod.MethodNotify, &pod.Notify{Message: "m"}},
		{`{"method":"pod_event","params":{"kind":"errored","pod_name":"c","message":"m"}}`, pod.MethodPodEvent, &pod.PodEvent{Kind: pod.PodErrored, PodName: "c", Message: "m"}},
		{`{"method":"resume"}`, pod.MethodResume, nil},
		{`{"method":"cancel"}`, pod.MethodCancel, nil},
		{`{"method":"pause"}`, pod.MethodPause, nil},
		{`{"method":"compact"}`, pod.MethodCompact, nil},
		{`{"method":"shutdown"}`, pod.MethodShutdown, nil},
		{`{"method":"list_completions","params":{"kind":"file","prefix":"src/"}}`, pod.MethodListCompletions, &pod.ListCompletions{Kind: "file", Prefix: "src/"}},
		{`{"method":"list_visible_pods"}`, pod.MethodListVisiblePods, nil},
		{`{"method":"inspect_pod","params":{"name":"c"}}`, pod.MethodInspectPod, &pod.Named{Name: "c"}},
		{`{"method":"attach_or_restore_pod","params":{"name":"c"}}`, pod.MethodAttachOrRestore, &pod.Named{Name: "c"}},
		{`{"method":"list_pods"}`, pod.MethodListPods, nil},
		{`{"method":"restore_pod","params":{"name":"c"}}`, pod.MethodRestorePod, &pod.Named{Name: "c"}},
		{`{"method":"register_peer","params":{"name":"c"}}`, pod.MethodRegisterPeer, &pod.Named{Name: "c"}},
		{`{"method":"list_rewind_targets"}`, pod.MethodListRewindTarget, nil},
		{`{"method":"rewind_to","params":{"target":7,"expected_head_entries":2}}`, pod.MethodRewindTo, &pod.RewindTo{Target: json.RawMessage("7"), ExpectedHeadEntries: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := pod.NewMethod(tt.name, tt.args)
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(m)
			if err != nil || string(b) != tt.line {
				t.Fatalf("%s, %v; want %s", b, err, tt.line)
			}
			args, err := m.Arguments()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.args, args); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestArgumentsRefuse(t *testing.T) {
	for _, tt := range []struct{ name, params, want string }{
		{"nothing-of-ours", `{}`, `there is no method "nothing-of-ours"`},
		{"run", ``, "the method run needs params"},
		{"run", `{"input":7}`, "the params of run can't be read"},
		{"run", `{"input":[{"content":"x"}]}`, "a segment has no kind"},
		{"run", `{"input":[{"kind":"text"}]}`, "a segment of the kind text lacks a field"},
		{"run", `{"input":[{"kind":"paste","content":"x"}]}`, "a segment of the kind paste lacks a field"},
		{"run", `{"input":[{"kind":"file_ref"}]}`, "a segment of the kind file_ref lacks a field"},
	} {
		_, err := pod.Method{Name: tt.name, Params: json.RawMessage(tt.params)}.Arguments()
		said, ok := errors.AsType[*pod.Error](err)
		if !ok || said.Code != pod.CodeInvalidRequest || !strings.Contains(said.Message, tt.want) {
			t.Errorf("%s %s: %v, want %s", tt.name, tt.params, err, tt.want)
		}
	}
}

func TestSegments(t *testing.T) {
	for _, tt := range []struct {
		line string
		want pod.Segment
	}{
		{`{"kind":"text","content":"a\nb"}`, pod.Text("a\nb")},
		{`{"kind":"paste","id":"p1","chars":0,"lines":1,"content":""}`, pod.Segment{Kind: pod.SegmentPaste, ID: "p1", Lines: 1}},
		{`{"kind":"file_ref","path":"/w/a"}`, pod.Segment{Kind: pod.SegmentFileRef, Path: "/w/a"}},
		{`{"kind":"knowledge_ref","slug":"s"}`, pod.Segment{Kind: pod.SegmentKnowledgeRef, Slug: "s"}},
		{`{"kind":"workflow_invoke","slug":"s"}`, pod.Segment{Kind: pod.SegmentWorkflowInvoke, Slug: "s"}},
		{`{"kind":"unknown"}`, pod.Segment{Kind: pod.SegmentUnknown}},
	} {
		var s pod.Segment
		if err := json.Unmarshal([]byte(tt.line), &s); err != nil || s != tt.want {
			t.Errorf("%s: %+v, %v", tt.line, s, err)
		}
		if b, err := json.Marshal(s); err != nil || string(b) != tt.line {
			t.Errorf("%s, %v; want %s", b, err, tt.line)
		}
	}
	var s pod.Segment
	if err := json.Unmarshal([]byte(`{"kind":"hologram","depth":3}`), &s); err != nil || s.Kind != pod.SegmentUnknown {
		t.Errorf("another version's segment: %+v, %v", s, err)
	}
	if _, err := json.Marshal(pod.Segment{Kind: "hologram"}); err == nil {
		t.Error("a segment of no kind was written")
	}
}

func TestPodEventText(t *testing.T) {
	for _, tt := range []struct {
		e    pod.PodEvent
		want string
	}{
		{pod.PodEvent{Kind: pod.PodTurnEnded, PodName: "X"}, "Pod `X` finished a turn."},
		{pod.PodEvent{Kind: pod.PodErrored, PodName: "X", Message: "M"}, "Pod `X` reported an error: M"},
		{pod.PodEvent{Kind: pod.PodShutDown, PodName: "X"}, "Pod `X` has stopped."},
		{pod.PodEvent{Kind: pod.PodScopeSubDelegated, ParentPod: "P", SubPod: "S"}, "Pod `P` spawned `S` and delegated scope to it."},
		{pod.PodEvent{Kind: "other"}, ""},
	} {
		if got := tt.e.Text(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestLivenessOf: only what shows that nobody is there is Gone.
func TestLivenessOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want pod.Liveness
	}{
		{nil, pod.Alive},
		{fs.ErrNotExist, pod.Gone},
		{fmt.Errorf("dial: %w", unix.ECONNREFUSED), pod.Gone},
		{unix.EAGAIN, pod.Unknown}, // its queue is full
		{unix.EACCES, pod.Unknown},
		{unix.EMFILE, pod.Unknown}, // we have no descriptor left
		{errors.New("the pod did not answer within 500ms"), pod.Unknown},
	} {
		if got := pod.LivenessOf(tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
	for l, want := range map[pod.Liveness]string{pod.Alive: "alive", pod.Gone: "gone", pod.Unknown: "unknown"} {
		if l.String() != want {
			t.Errorf("%v, want %s", l, want)
		}
	}
}

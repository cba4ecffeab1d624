package interpreter

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
)

// TestOutbox: a cell puts out 64 MiB, and no more; that it was too much can still be said.
func TestOutbox(t *testing.T) {
	o := newOutbox()
	o.size = 64<<20 - int64(len(encode("x")))
	if !o.put("x") || o.put("y") {
		t.Errorf("the limit is %d bytes, want 64 MiB", maxOutput)
	}
	o.say("z")
	if lines, _ := o.take(); len(lines) != 2 || string(lines[1]) != string(encode("z")) {
		t.Errorf("took %q", lines)
	}
}

// A reply comes by another socket than output: it may be here first, and the
// error that it tells is told after all that was put out.
func TestLateOutputOfAFailure(t *testing.T) {
	failed := json.RawMessage(`{"status":"error","ename":"ZeroDivisionError","evalue":"division by zero","traceback":["there"]}`)
	output := json.RawMessage(`{"name":"stdout","text":"late"}`)
	idleState := json.RawMessage(`{"execution_state":"idle"}`)
	for _, told := range []bool{true, false} { // by an error of its own on iopub, too
		c := &cell{
			id: "1", out: newOutbox(),
			replied: make(chan struct{}), idle: make(chan struct{}), gone: make(chan struct{}), stop: make(chan struct{}),
		}
		say := func(kind string, content json.RawMessage) {
			c.message(jupyter.Message{Header: jupyter.Header{Type: kind}, Content: content})
		}
		say("execute_reply", failed)
		say("stream", output)
		if told {
			say("error", failed)
		}
		say("status", idleState)
		(&kernel{}).follow(t.Context(), c)
		all := bytes.Join(c.out.lines, nil)
		late, failure := bytes.Index(all, []byte("late")), bytes.Index(all, []byte("ZeroDivisionError"))
		if late < 0 || failure < late || bytes.Count(all, []byte(`"error"`)) != 1 || !c.said {
			t.Errorf("told on iopub: %v: the client got\n%s", told, all)
		}
	}
}

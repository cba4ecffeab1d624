package fakemodel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// completionsRequest is what is read of a request of Chat Completions.
type completionsRequest struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	Tools  []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

func (q *completionsRequest) chat() *chat {
	c := &chat{model: q.Model, stream: q.Stream}
	for _, t := range q.Tools {
		c.tools = append(c.tools, t.Function.Name)
	}
	for _, m := range q.Messages {
		switch m.Role {
		case "user":
			c.turns = append(c.turns, turn{text: texts(m.Content)})
		case "tool":
			c.turns = append(c.turns, turn{result: true, text: texts(m.Content)})
		}
	}
	return c
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	var req completionsRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, `{"error":{"message":"not JSON","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	c := req.chat()
	a := c.next(s.Scripts)
	message, end := object{"role": "assistant", "content": a.text}, "stop"
	if a.call != nil {
		raw, _ := json.Marshal(a.call.input) // strings, which are never refused
		message["content"], end = nil, "tool_calls"
		message["tool_calls"] = []object{{
			"index": 0, "id": fmt.Sprintf("call_%06d", a.step), "type": "function",
			"function": object{"name": a.call.name, "arguments": string(raw)},
		}}
	}
	body := func(kind, field string, delta object, finish any) object {
		return object{
			"id": "chatcmpl-1", "object": kind, "created": 1, "model": c.model,
			"choices": []object{{"index": 0, field: delta, "finish_reason": finish}},
		}
	}
	usage := object{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
	if !c.stream {
		whole := body("chat.completion", "message", message, end)
		whole["usage"] = usage
		reply(w, whole)
		return
	}
	e := newEvents(w)
	if a.hold {
		first, second := halves(a.text)
		e.send("", body("chat.completion.chunk", "delta", object{"role": "assistant", "content": first}, nil))
		if !s.wait(r) {
			return
		}
		message["content"] = second
	}
	e.send("", body("chat.completion.chunk", "delta", message, nil))
	last := body("chat.completion.chunk", "delta", object{}, end)
	last["usage"] = usage
	e.send("", last)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// messagesRequest is what is read of a request of the Messages API.
type messagesRequest struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	Tools  []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

func (m *messagesRequest) chat() *chat {
	c := &chat{model: m.Model, stream: m.Stream}
	for _, t := range m.Tools {
		c.tools = append(c.tools, t.Name)
	}
	for _, msg := range m.Messages {
		if msg.Role != "user" {
			continue
		}
		var blocks []struct {
			Type    string          `json:"type"`
			Text    string          `json:"text"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(msg.Content, &blocks) != nil {
			c.turns = append(c.turns, turn{text: texts(msg.Content)})
			continue
		}
		for _, b := range blocks {
			if b.Type == "tool_result" {
				c.turns = append(c.turns, turn{result: true, text: texts(b.Content)})
			} else {
				c.turns = append(c.turns, turn{text: b.Text})
			}
		}
	}
	return c
}

func (s *Server) anthropic() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, object{"input_tokens": 100})
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, object{"data": []object{{"type": "model", "id": "claude-sonnet-4-5", "display_name": "Claude Sonnet 4.5", "created_at": "2025-09-29T00:00:00Z"}}, "has_more": false})
	})
	return mux
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	var req messagesRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"not JSON"}}`, http.StatusBadRequest)
		return
	}
	c := req.chat()
	a := c.next(s.Scripts)
	id := fmt.Sprintf("msg_%06d", len(c.turns))
	block, stop := object{"type": "text", "text": a.text}, "end_turn"
	if a.call != nil {
		block, stop = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%06d", a.step), "name": a.call.name, "input": a.call.input}, "tool_use"
	}
	message := object{
		"id": id, "type": "message", "role": "assistant", "model": c.model, "content": []object{block},
		"stop_reason": stop, "stop_sequence": nil, "usage": object{"input_tokens": 100, "output_tokens": 10},
	}
	if !c.stream {
		reply(w, message)
		return
	}
	message["content"], message["stop_reason"] = []object{}, nil
	e := newEvents(w)
	e.send("message_start", object{"type": "message_start", "message": message})
	s.block(e, r, a, block)
	e.send("content_block_stop", object{"type": "content_block_stop", "index": 0})
	e.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 10}})
	e.send("message_stop", object{"type": "message_stop"})
}

// block streams what a message holds.
func (s *Server) block(e *events, r *http.Request, a answer, block object) {
	delta := func(d object) {
		e.send("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": d})
	}
	if a.call != nil {
		block["input"] = object{}
		e.send("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": block})
		raw, _ := json.Marshal(a.call.input) // strings, which are never refused
		first, second := halves(string(raw))
		delta(object{"type": "input_json_delta", "partial_json": first})
		delta(object{"type": "input_json_delta", "partial_json": second})
		return
	}
	e.send("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
	first, second := halves(a.text)
	delta(object{"type": "text_delta", "text": first})
	if a.hold && !s.wait(r) {
		return
	}
	delta(object{"type": "text_delta", "text": second})
}

package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// responsesRequest is what is read of a request of the Responses API.
type responsesRequest struct {
	Model  string          `json:"model"`
	Stream bool            `json:"stream"`
	Tools  []responsesTool `json:"tools"`
	Input  json.RawMessage `json:"input"`
}

// responsesTool is a tool, or a namespace of some.
type responsesTool struct {
	Type  string          `json:"type"`
	Name  string          `json:"name"`
	Tools []responsesTool `json:"tools"`
}

// tool adds one that is offered.
func (c *chat) tool(t responsesTool) {
	switch t.Type {
	case "namespace":
		for _, inner := range t.Tools {
			c.tool(inner)
		}
	case "custom":
		c.tools = append(c.tools, t.Name+":custom")
	default:
		c.tools = append(c.tools, t.Name)
	}
}

func (q *responsesRequest) chat() *chat {
	c := &chat{model: q.Model, stream: q.Stream}
	for _, t := range q.Tools {
		c.tool(t)
	}
	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		CallID  string          `json:"call_id"`
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
		Tools   []responsesTool `json:"tools"`
	}
	if json.Unmarshal(q.Input, &items) != nil {
		c.turns = []turn{{text: texts(q.Input)}}
		return c
	}
	told := map[string]bool{} // calls that had a result: some have several
	for _, item := range items {
		for _, t := range item.Tools { // Codex offers tools in the course of a conversation
			c.tool(t)
		}
		switch {
		case item.Type == "function_call_output" || item.Type == "custom_tool_call_output":
			if !told[item.CallID] {
				c.turns = append(c.turns, turn{result: true, text: texts(item.Output)})
			}
			told[item.CallID] = true
		case item.Role == "user":
			c.turns = append(c.turns, turn{text: texts(item.Content)})
		}
	}
	return c
}

func (s *Server) openAI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", s.responses)
	mux.HandleFunc("POST /v1/chat/completions", s.completions)
	mux.HandleFunc("GET /v1/responses", noWebSocket)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, object{"object": "list", "data": []object{{"id": "gpt-5", "object": "model", "created": 1, "owned_by": "openai"}}})
	})
	return mux
}

// chatGPT is what Codex speaks to under a ChatGPT login.
func (s *Server) chatGPT() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /backend-api/codex/responses", s.responses)
	mux.HandleFunc("GET /backend-api/codex/responses", noWebSocket)
	mux.HandleFunc("GET /backend-api/wham/accounts/check", func(w http.ResponseWriter, r *http.Request) {
		// Without it Codex sends nothing to the model.
		reply(w, object{"accounts": []object{{
			"id": r.Header.Get("Chatgpt-Account-Id"), "plan_type": "plus",
			"workspace_backend_origin": "NO_CONSTRAINT", "account_routing_override": "NO_CONSTRAINT",
		}}})
	})
	return mux
}

// noWebSocket answers so that Codex goes on without one.
func noWebSocket(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusUpgradeRequired)
}

func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	var req responsesRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, `{"error":{"message":"not JSON","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	c := req.chat()
	a := c.next(s.Scripts)
	response := object{
		"id": fmt.Sprintf("resp_%06d", len(c.turns)), "object": "response", "created_at": 1, "model": c.model,
		"status": "completed", "output": []object{}, "incomplete_details": nil, "error": nil,
		"usage": object{
			"input_tokens": 100, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": 10,
			"output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 110,
		},
	}
	item := outputItem(a)
	if !c.stream {
		response["output"] = []object{item}
		reply(w, response)
		return
	}
	e := &numbered{events: newEvents(w)}
	e.send("response.created", object{"response": response})
	s.item(e, r, a, item)
	response["output"] = []object{item}
	e.send("response.completed", object{"response": response})
}

func outputItem(a answer) object {
	switch {
	case a.call == nil:
		return object{
			"type": "message", "id": fmt.Sprintf("msg_%06d", a.step), "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": a.text, "annotations": []object{}}},
		}
	case a.call.custom != "":
		return object{
			"type": "custom_tool_call", "id": fmt.Sprintf("ctc_%06d", a.step), "call_id": fmt.Sprintf("call_%06d", a.step),
			"name": a.call.name, "input": a.call.custom, "status": "completed",
		}
	}
	raw, _ := json.Marshal(a.call.input) // strings, which are never refused
	return object{
		"type": "function_call", "id": fmt.Sprintf("fc_%06d", a.step), "call_id": fmt.Sprintf("call_%06d", a.step),
		"name": a.call.name, "arguments": string(raw), "status": "completed",
	}
}

// numbered events say their type and their number in themselves.
type numbered struct {
	*events
	n int
}

func (e *numbered) send(name string, data object) {
	data["type"], data["sequence_number"] = name, e.n
	e.n++
	e.events.send(name, data)
}

// item streams a response's only item.
func (s *Server) item(e *numbered, r *http.Request, a answer, item object) {
	begun := object{}
	for k, v := range item {
		begun[k] = v
	}
	begun["status"] = "in_progress"
	switch {
	case a.call == nil:
		begun["content"] = []object{}
	case a.call.custom == "":
		begun["arguments"] = ""
	default:
		begun["input"] = ""
	}
	e.send("response.output_item.added", object{"output_index": 0, "item": begun})
	at := func(more object) object {
		more["item_id"], more["output_index"] = item["id"], 0
		return more
	}
	switch {
	case a.call == nil:
		part := object{"type": "output_text", "text": "", "annotations": []object{}}
		e.send("response.content_part.added", at(object{"content_index": 0, "part": part}))
		first, second := halves(a.text)
		e.send("response.output_text.delta", at(object{"content_index": 0, "delta": first}))
		if a.hold && !s.wait(r) {
			return
		}
		e.send("response.output_text.delta", at(object{"content_index": 0, "delta": second}))
		e.send("response.output_text.done", at(object{"content_index": 0, "text": a.text}))
	case a.call.custom != "":
		e.send("response.custom_tool_call_input.delta", at(object{"delta": a.call.custom}))
		e.send("response.custom_tool_call_input.done", at(object{"input": a.call.custom}))
	default:
		e.send("response.function_call_arguments.delta", at(object{"delta": item["arguments"]}))
		e.send("response.function_call_arguments.done", at(object{"arguments": item["arguments"]}))
	}
	e.send("response.output_item.done", object{"output_index": 0, "item": item})
}

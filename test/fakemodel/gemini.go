package fakemodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

// generateRequest is what is read of a request of Gemini's API.
type generateRequest struct {
	Tools []struct {
		FunctionDeclarations []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	Contents []struct {
		Role  string `json:"role"`
		Parts []struct {
			Text             string `json:"text"`
			FunctionResponse *struct {
				Response json.RawMessage `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"contents"`
	GenerationConfig struct {
		ResponseMIMEType string `json:"responseMimeType"`
	} `json:"generationConfig"`
}

func (g *generateRequest) chat() *chat {
	c := &chat{}
	for _, t := range g.Tools {
		for _, f := range t.FunctionDeclarations {
			c.tools = append(c.tools, f.Name)
		}
	}
	for _, content := range g.Contents {
		if content.Role == "model" {
			continue
		}
		for _, p := range content.Parts {
			if p.FunctionResponse != nil {
				c.turns = append(c.turns, turn{result: true, text: string(p.FunctionResponse.Response)})
			} else {
				c.turns = append(c.turns, turn{text: p.Text})
			}
		}
	}
	return c
}

func (s *Server) gemini() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1beta/models/{call}", s.generate)
	mux.HandleFunc("GET /v1beta/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, object{"models": []object{{"name": "models/gemini-2.5-pro", "supportedGenerationMethods": []string{"generateContent"}}}})
	})
	return mux
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	_, method, _ := strings.Cut(r.PathValue("call"), ":")
	var req generateRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, `{"error":{"code":400,"message":"not JSON","status":"INVALID_ARGUMENT"}}`, http.StatusBadRequest)
		return
	}
	if method == "countTokens" {
		reply(w, object{"totalTokens": 100})
		return
	}
	c := req.chat()
	a := c.next(s.Scripts)
	if req.GenerationConfig.ResponseMIMEType == "application/json" {
		// The program asks beside the conversation, such as which model shall do it.
		a = answer{text: `{"reasoning":"simple","model_choice":"flash","complexity_reasoning":"simple","complexity_score":10,"next_speaker":"user"}`}
	}
	chunk := func(part object, end bool) object {
		candidate := object{"content": object{"role": "model", "parts": []object{part}}, "index": 0}
		if end {
			candidate["finishReason"] = "STOP"
		}
		return object{
			"candidates": []object{candidate}, "modelVersion": "gemini-2.5-pro",
			"usageMetadata": object{"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110},
		}
	}
	part := object{"text": a.text}
	if a.call != nil {
		part = object{"functionCall": object{"name": a.call.name, "args": a.call.input}}
	}
	if method != "streamGenerateContent" {
		reply(w, chunk(part, true))
		return
	}
	e := newEvents(w)
	if a.call != nil {
		e.send("", chunk(part, true))
		return
	}
	first, second := halves(a.text)
	e.send("", chunk(object{"text": first}, false))
	if a.hold && !s.wait(r) {
		return
	}
	e.send("", chunk(object{"text": second}, true))
}

package fakemodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The names that clients know.
const (
	Anthropic = "api.anthropic.com"
	OpenAI    = "api.openai.com"
	ChatGPT   = "chatgpt.com"
	Gemini    = "generativelanguage.googleapis.com"
)

// maxBody bounds a request.
const maxBody = 32 << 20

// Server is all of the APIs, with one script for all.
type Server struct {
	// Key is the credential that is wanted, in whatever field an API takes it.
	Key     string
	Scripts []Script

	mu       sync.Mutex
	requests []Request // guarded by mu
	held     int       // turns that wait; guarded by mu
	release  chan struct{}
}

// NewServer makes one that wants the key.
func NewServer(key string, scripts ...Script) *Server {
	return &Server{Key: key, Scripts: scripts, release: make(chan struct{})}
}

// Request is one that was received.
type Request struct {
	Host, Method, Path string
	Header             http.Header
	Body               []byte // decoded
	// Credential is what came in the place of one, without its scheme.
	Credential string
	Status     int // 0 until it has been answered
}

// Requests are those received until now, by the name asked for, or all for "".
func (s *Server) Requests(host string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r Request) bool { return host != "" && r.Host != host })
}

// Held is how many turns wait for Release.
func (s *Server) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Release lets one turn that is held go on.
func (s *Server) Release() { s.release <- struct{}{} }

// Handlers are the APIs by their names.
func (s *Server) Handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{
		Anthropic: s.anthropic(), OpenAI: s.openAI(), ChatGPT: s.chatGPT(), Gemini: s.gemini(),
	}
	for host, h := range handlers {
		handlers[host] = s.keep(host, h)
	}
	return handlers
}

// Hosts are the names that Handlers has.
func (s *Server) Hosts() []string { return slices.Sorted(maps.Keys(s.Handlers())) }

// keep records requests, and answers only those that have the key.
func (s *Server) keep(host string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := decoded(http.MaxBytesReader(w, r.Body, maxBody), r.Header.Get("Content-Encoding"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		got := credential(r)
		at := s.received(Request{
			Host: host, Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body, Credential: got,
		})
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		if got != s.Key {
			refuse(sw, host)
		} else {
			h.ServeHTTP(sw, r)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests[at].Status = sw.status
	})
}

// received keeps a request, and returns where.
func (s *Server) received(r Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	return len(s.requests) - 1
}

// decoded reads a body, which Codex sends packed under a ChatGPT login.
func decoded(body io.Reader, encoding string) ([]byte, error) {
	if encoding == "zstd" {
		z, err := zstd.NewReader(body)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		body = io.LimitReader(z, maxBody)
	}
	return io.ReadAll(body)
}

func credential(r *http.Request) string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key", "Authorization"} {
		if v := r.Header.Get(name); v != "" {
			return strings.TrimPrefix(v, "Bearer ")
		}
	}
	return r.URL.Query().Get("key")
}

// refuse says of a key that it is none, as each API does.
func refuse(w http.ResponseWriter, host string) {
	w.Header().Set("Content-Type", "application/json")
	text := `{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`
	status := http.StatusUnauthorized
	switch host {
	case Anthropic:
		text = `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`
	case Gemini:
		status = http.StatusBadRequest
		text = `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}`
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// wait holds a turn until it is released, or nobody wants it any more.
func (s *Server) wait(r *http.Request) bool {
	s.mu.Lock()
	s.held++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
	}()
	select {
	case <-s.release:
		return true
	case <-r.Context().Done():
		return false
	}
}

// events is a stream of them.
type events struct {
	w http.ResponseWriter
}

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	return &events{w}
}

// send sends one, with a name unless that is "".
func (e *events) send(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		return // what is sent here are maps of strings and numbers
	}
	if name != "" {
		fmt.Fprintf(e.w, "event: %s\n", name)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", raw)
	_ = http.NewResponseController(e.w).Flush()
}

// object is a JSON object that is written.
type object = map[string]any

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// texts finds all strings under the key "text" in a piece of JSON, or the piece
// itself if it is a string: how every API nests what is said.
func texts(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	var out []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if t, ok := v["text"]; ok {
				walk(t)
			}
		}
	}
	walk(v)
	return strings.Join(out, "\n")
}

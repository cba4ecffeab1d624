package interpreter

import (
	"encoding/json"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
)

// The events of a cell, as E2B's clients read them.
type (
	output struct {
		Type      string `json:"type"` // stdout or stderr
		Text      string `json:"text"`
		Timestamp string `json:"timestamp"`
	}
	failure struct {
		Type      string `json:"type"` // error
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}
	count struct {
		Type  string `json:"type"` // number_of_executions
		Count int    `json:"execution_count"`
	}
	bare struct {
		Type string `json:"type"` // keepalive or end_of_execution
	}
)

func errorEvent(name, value string) failure { return failure{Type: "error", Name: name, Value: value} }

// fields are the names by which clients know kinds of data. What has none is
// handed on below "extra".
var fields = map[string]string{
	"text/plain":             "text",
	"text/html":              "html",
	"text/markdown":          "markdown",
	"image/svg+xml":          "svg",
	"image/png":              "png",
	"image/jpeg":             "jpeg",
	"application/pdf":        "pdf",
	"text/latex":             "latex",
	"application/json":       "json",
	"application/javascript": "javascript",
	"e2b/data":               "data",
	"e2b/chart":              "chart",
}

// event makes a client's event of a kernel's message, or nil of one that
// clients do not see.
func event(m jupyter.Message) (any, error) {
	switch m.Header.Type {
	case "stream":
		var c struct{ Name, Text string }
		if err := json.Unmarshal(m.Content, &c); err != nil {
			return nil, err
		}
		if c.Name != "stdout" && c.Name != "stderr" {
			return nil, nil
		}
		return output{Type: c.Name, Text: c.Text, Timestamp: m.Header.Date}, nil
	case "display_data", "update_display_data", "execute_result":
		return result(m)
	case "execute_input":
		var c struct {
			Count int `json:"execution_count"`
		}
		if err := json.Unmarshal(m.Content, &c); err != nil {
			return nil, err
		}
		return count{Type: "number_of_executions", Count: c.Count}, nil
	}
	return nil, nil
}

// result is what a cell's last expression came to, or what it displayed.
func result(m jupyter.Message) (any, error) {
	var c struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(m.Content, &c); err != nil {
		return nil, err
	}
	extra := map[string]json.RawMessage{}
	out := map[string]any{"type": "result", "is_main_result": m.Header.Type == "execute_result", "extra": extra}
	for mime, value := range c.Data {
		name, ok := fields[mime]
		if !ok {
			extra[mime] = value
			continue
		}
		out[name] = value
	}
	if text, ok := c.Data["text/plain"]; ok {
		out["text"] = unquoted(text)
	}
	return out, nil
}

// unquoted takes the quotes off a text that is the repr of a string.
func unquoted(value json.RawMessage) any {
	var s string
	if json.Unmarshal(value, &s) != nil {
		return value
	}
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// exception reads what a kernel says of an error, in an "error" message or in
// the reply to a cell.
func exception(content json.RawMessage) failure {
	var c struct {
		Name      string   `json:"ename"`
		Value     string   `json:"evalue"`
		Traceback []string `json:"traceback"`
	}
	_ = json.Unmarshal(content, &c)
	return failure{Type: "error", Name: c.Name, Value: c.Value, Traceback: strings.Join(c.Traceback, "\n")}
}

package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// Message is one decoded message: either is set.
type Message struct {
	Request  *langbot.Request
	Response *langbot.Response
}

// badRequestError is a request that can't be served; it is answered all the
// same.
type badRequestError struct {
	SeqID int64 // -1: it has none
	Text  string
}

// Error says what is wrong with it.
func (e *badRequestError) Error() string { return e.Text }

// Decode reads one message. One with a "code" is a response, whatever else it
// has. Fields of the envelope that are not known are ignored; of an action's
// context they are an error, as they change for whom it is.
func Decode(message []byte) (Message, error) {
	if len(message) > MaxMessage {
		return Message{}, errTooLarge(len(message))
	}
	if !utf8.Valid(message) {
		return Message{}, errors.New("a message that is not UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(message, &fields); err != nil {
		return Message{}, fmt.Errorf("a message that is no JSON object: %w", err)
	}
	if fields == nil {
		return Message{}, errors.New("a message that is no JSON object: it is null")
	}
	if _, ok := fields["code"]; ok {
		r, err := decodeResponse(fields)
		return Message{Response: r}, err
	}
	if _, ok := fields["action"]; ok {
		r, err := decodeRequest(fields)
		return Message{Request: r}, err
	}
	return Message{}, errors.New("a message with neither action nor code")
}

func decodeResponse(fields map[string]json.RawMessage) (*langbot.Response, error) {
	r := &langbot.Response{SeqID: -1}
	if err := field(fields, "code", &r.Code); err != nil {
		return nil, err
	}
	if err := field(fields, "message", &r.Message); err != nil {
		return nil, err
	}
	if err := field(fields, "seq_id", &r.SeqID); err != nil {
		return nil, err
	}
	if err := field(fields, "chunk_status", &r.ChunkStatus); err != nil {
		return nil, err
	}
	r.Data = fields["data"]
	if !isObject(r.Data) {
		return nil, errors.New("a response whose data is no object")
	}
	return r, nil
}

func decodeRequest(fields map[string]json.RawMessage) (*langbot.Request, error) {
	r := &langbot.Request{}
	seq := int64(-1)
	bad := func(err error) (*langbot.Request, error) {
		return nil, &badRequestError{SeqID: seq, Text: err.Error()}
	}
	if err := json.Unmarshal(orNull(fields["seq_id"]), &seq); err != nil {
		return bad(errors.New("seq_id is no integer"))
	}
	r.SeqID = seq
	if err := field(fields, "action", &r.Action); err != nil {
		return bad(err)
	}
	r.Data = fields["data"]
	if !isObject(r.Data) {
		return bad(errors.New("a request whose data is no object"))
	}
	c, err := decodeContext(fields["context"])
	if err != nil {
		return bad(err)
	}
	r.Context = c
	return r, nil
}

// decodeContext reads an action's context; nil where there is none. What it has
// for an installation of a plugin is no matter of Box's, and left out.
func decodeContext(raw json.RawMessage) (*langbot.Context, error) {
	if !isObject(raw) {
		if t := bytes.TrimSpace(raw); len(t) == 0 || string(t) == "null" {
			return nil, nil
		}
		return nil, errors.New("context is no object")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	c := &langbot.Context{PlacementGeneration: 1}
	for name, value := range fields {
		var err error
		switch name {
		case "instance_uuid":
			err = json.Unmarshal(value, &c.InstanceUUID)
		case "workspace_uuid":
			err = json.Unmarshal(value, &c.WorkspaceUUID)
		case "placement_generation":
			err = json.Unmarshal(value, &c.PlacementGeneration)
		case "installation_uuid", "runtime_revision", "artifact_digest":
		default:
			return nil, fmt.Errorf("context: field %.64q is not known", name)
		}
		if err != nil {
			return nil, fmt.Errorf("context: %s has the wrong type", name)
		}
	}
	c.InstanceUUID = strings.TrimSpace(c.InstanceUUID)
	c.WorkspaceUUID = strings.TrimSpace(c.WorkspaceUUID)
	switch {
	case c.InstanceUUID == "" || c.WorkspaceUUID == "":
		return nil, errors.New("context: instance_uuid and workspace_uuid must not be empty")
	case len(c.InstanceUUID) > 256 || len(c.WorkspaceUUID) > 256:
		return nil, errors.New("context: instance_uuid and workspace_uuid are at most 256 bytes")
	case strings.ContainsRune(c.InstanceUUID+c.WorkspaceUUID, utf8.RuneError): // of several, all would be one
		return nil, errors.New("context: instance_uuid and workspace_uuid must be characters, not halves of surrogate pairs")
	case c.PlacementGeneration < 1:
		return nil, fmt.Errorf("context: placement_generation must be at least 1, not %d", c.PlacementGeneration)
	}
	return c, nil
}

// Encode writes a message as the other side reads it: UTF-8, with nothing
// escaped that JSON does not ask for.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// cutError cuts an error's text at MaxErrorText characters, and says so.
func cutError(text string) string {
	n := 0
	for i := range text {
		if n == MaxErrorText {
			return text[:i] + "... [the rest of this error was cut]"
		}
		n++
	}
	return text
}

func field[T any](fields map[string]json.RawMessage, name string, to *T) error {
	if err := json.Unmarshal(orNull(fields[name]), to); err != nil {
		return fmt.Errorf("%s has the wrong type", name)
	}
	return nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

func isObject(raw json.RawMessage) bool {
	t := bytes.TrimLeft(raw, " \t\r\n")
	return len(t) > 0 && t[0] == '{'
}

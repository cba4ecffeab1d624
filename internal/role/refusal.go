package role

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// refusalMark begins the line of a role that failed for what its caller's user did: the
// error goes on as it was, with its kind and its hint.
const refusalMark = "carboy-refused: "

// refusal is such an error on its way.
type refusal struct {
	Kind sandbox.Kind `json:"kind"`
	Msg  string       `json:"msg"`
	Hint string       `json:"hint,omitempty"`
}

// said is what a role writes of its error: text, or a refusal's line where a user may
// read it.
func said(err error) string {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind == sandbox.Internal {
		return err.Error()
	}
	raw, merr := json.Marshal(refusal{e.Kind, e.Msg, e.Hint})
	if merr != nil {
		return err.Error()
	}
	return refusalMark + string(raw)
}

// heard is the error that a role's words mean.
func heard(text string) error {
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if raw, ok := strings.CutPrefix(last, refusalMark); ok {
		var r refusal
		if json.Unmarshal([]byte(raw), &r) == nil && r.Kind != "" && r.Msg != "" {
			return &sandbox.Error{Kind: r.Kind, Msg: r.Msg, Hint: r.Hint, Err: errors.New(text)}
		}
	}
	return errors.New(text)
}

// Package strict reads JSON in which a name means one field: the one that is
// spelt exactly so. It is for what people and strangers write: bodies of
// requests, the configuration, keys.
//
// It refuses a field that the receiver does not know or that is there twice,
// deep nesting, and what follows the value. Package encoding/json takes
// "Listen", and "liſten", for "listen": what a reader of the text, or a check in
// front of it, takes for nothing would be the value that counts.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"io"
	"reflect"
	"strings"

	strictjson "sigs.k8s.io/json"
)

const maxDepth = 32

// Error says what is wrong with a text, and repeats no value of it.
type Error struct{ Msg string }

// Error is what is wrong.
func (e *Error) Error() string { return e.Msg }

func errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Unmarshal reads one JSON value into v. Its errors are *Error, but for what
// methods of v's own types say.
func Unmarshal(b []byte, v any) error {
	if err := walk(b); err != nil {
		return err
	}
	unknown, err := strictjson.UnmarshalStrict(b, v, strictjson.DisallowUnknownFields)
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(te.Value, " ") // without the value of a number
		field := te.Field
		for { // without the types that are embedded on the way, whose names nobody wrote
			first, rest, nested := strings.Cut(field, ".")
			if !nested || !token.IsExported(first) {
				break
			}
			field = rest
		}
		switch {
		case field == "":
			return errorf("it can't be a JSON %s", kind)
		case kind == "number" && te.Type.Kind() >= reflect.Int && te.Type.Kind() <= reflect.Uint64:
			return errorf("field %q has to be a whole number, and no larger", field)
		}
		return errorf("field %q can't be a JSON %s", field, kind)
	}
	if err == nil && len(unknown) > 0 {
		field := unknown[0].Error()
		if fe, ok := errors.AsType[strictjson.FieldError](unknown[0]); ok {
			field = fe.FieldPath()
		}
		return errorf("there is no field %.80q", field)
	}
	return err
}

// Known reads the fields that v has, by exact names too, and leaves out what
// else there is: for a protocol whose callers say more.
func Known(b []byte, v any) error {
	return strictjson.UnmarshalCaseSensitivePreserveInts(b, v)
}

// walk looks at what the decoder does not at every depth, or lets pass: what
// follows the value, deep nesting, and a name that an object has twice.
func walk(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := walkValue(dec, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errorf("more than one JSON value")
	}
	return nil
}

func walkValue(dec *json.Decoder, depth int) error {
	t, err := dec.Token()
	if err != nil {
		return syntax(err)
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return errorf("nested deeper than %d", maxDepth)
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			t, err := dec.Token()
			if err != nil {
				return syntax(err)
			}
			name, _ := t.(string)
			if seen[name] {
				return errorf("field %.80q is there twice", name)
			}
			seen[name] = true
		}
		if err := walkValue(dec, depth+1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return syntax(err)
	}
	return nil
}

func syntax(err error) error {
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return errorf("not JSON, at byte %d", se.Offset)
	}
	return errorf("not JSON")
}

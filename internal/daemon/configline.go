package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// faultyField returns the first field of a configuration that can't be read by
// itself, such as limits.default.memory, and its line; where it is not JSON at all, the line alone; 0 where
// neither is known.
func faultyField(b []byte) (line int, name string) {
	at := func(offset int64) int { return 1 + bytes.Count(b[:min(int(offset), len(b))], []byte("\n")) }
	d := json.NewDecoder(bytes.NewReader(b))
	failed := func(err error) (int, string) {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return at(e.Offset), ""
		}
		return 0, ""
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return failed(err)
	}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return failed(err)
		}
		begin := d.InputOffset()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return failed(err)
		}
		if !readable(value, key) {
			inner, more := narrow(value, key)
			// What was decoded is the last that was read.
			return at(max(begin, d.InputOffset()-int64(len(value))+inner)), strings.Join(append([]string{key}, more...), ".")
		}
	}
	if _, err := d.Token(); err != nil {
		return failed(err)
	}
	if _, err := d.Token(); err != nil { // what stands after it
		return failed(err)
	}
	return at(d.InputOffset()), ""
}

// readable reports whether value can be read as the field that path leads to.
func readable(value json.RawMessage, path ...string) bool {
	for _, name := range slices.Backward(path) {
		one, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err != nil {
			return false
		}
		value = one
	}
	return strict.Unmarshal(value, new(Config)) == nil
}

// narrow leads from a field that can't be read to the field in it that can't, and to where in
// value that begins; nowhere, where value is no object, or each field of it can be read.
func narrow(value json.RawMessage, path ...string) (offset int64, more []string) {
	d := json.NewDecoder(bytes.NewReader(value))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, nil
	}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		var inner json.RawMessage
		if err != nil || !ok || d.Decode(&inner) != nil {
			return 0, nil
		}
		to := append(slices.Clone(path), key)
		if readable(inner, to...) {
			continue
		}
		offset, more = narrow(inner, to...)
		return d.InputOffset() - int64(len(inner)) + offset, append([]string{key}, more...)
	}
	return 0, nil
}

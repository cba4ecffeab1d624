package daemon

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// faultyField returns the first field of a configuration that can't be read by
// itself, and its line; where it is not JSON at all, the line alone; 0 where
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
		one, err := json.Marshal(map[string]json.RawMessage{key: value})
		if err != nil || strict.Unmarshal(one, new(Config)) != nil {
			return at(begin), key
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

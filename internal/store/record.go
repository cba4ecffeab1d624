package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// encode returns sb as JSON, without its tokens.
func encode(sb *sandbox.Sandbox) (string, error) {
	b, err := json.Marshal(sb)
	if err != nil {
		return "", fmt.Errorf("encode record: %w", err)
	}
	return string(b), nil
}

// parse reads what encode wrote, and nothing else: a field that this version
// does not know may be a promise that it would not keep.
func parse(id, record string) (*sandbox.Sandbox, error) {
	dec := json.NewDecoder(strings.NewReader(record))
	dec.DisallowUnknownFields()
	sb := new(sandbox.Sandbox)
	if err := dec.Decode(sb); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows the record")
	}
	if sb.ID != id {
		return nil, errors.New("the record is another sandbox's")
	}
	return sb, nil
}

// decode returns the sandbox of one row.
func (s *SQLite) decode(id, record string, token, traffic []byte) (*sandbox.Sandbox, error) {
	sb, err := parse(id, record)
	if err == nil {
		sb.Token, err = s.sealer.open(bytes.Clone(token), id)
	}
	if err == nil && traffic != nil {
		sb.TrafficToken, err = s.sealer.open(bytes.Clone(traffic), trafficID(id))
	}
	if err != nil {
		e := sandbox.Errorf(sandbox.Internal, "the record of sandbox %q in %s can't be read", id, s.path).
			WithHint(restoreHint, s.path)
		e.Err = err
		return nil, e
	}
	return sb, nil
}

// trafficID is what the traffic token of a sandbox is sealed for, so that it
// and the other do not open in each other's place.
func trafficID(id string) string { return id + " traffic" }

// sealTraffic returns the column of sb's traffic token.
func (s *SQLite) sealTraffic(sb *sandbox.Sandbox) []byte {
	if sb.TrafficToken == "" {
		return nil
	}
	return s.sealer.seal(sb.TrafficToken, trafficID(sb.ID))
}

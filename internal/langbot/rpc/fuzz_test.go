package rpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"seq_id": 1, "action": "x", "data": {}}`,
		`{"seq_id": 1, "code": 0, "message": "success", "data": {"a": 1}, "chunk_status": "continue"}`,
		`{"seq_id":1,"action":"x","data":{},"context":{"instance_uuid":"i","workspace_uuid":"w","placement_generation":2}}`,
		`{"seq_id":null,"action":null,"data":null}`, `null`, `[]`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := rpc.Decode(b)
		switch {
		case err != nil:
			if m.Request != nil && m.Response != nil {
				t.Error("an error with a message")
			}
		case (m.Request == nil) == (m.Response == nil):
			t.Error("it is neither, or both")
		case m.Request != nil:
			if c := m.Request.Context; c != nil && (c.InstanceUUID == "" || c.WorkspaceUUID == "" || c.PlacementGeneration < 1) {
				t.Errorf("context %+v", c)
			}
			again, err := rpc.Encode(m.Request)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := rpc.Decode(again); err != nil || back.Request == nil || back.Request.Action != m.Request.Action || back.Request.SeqID != m.Request.SeqID {
				t.Errorf("%s comes back as %+v, %v", again, back.Request, err)
			}
		}
	})
}

func FuzzStdio(f *testing.F) {
	f.Add([]byte("{\"type\": \"chunk_start\", \"total_size\": 2}\n{\"type\":\"chunk_data\",\"data\":\"{}\",\"offset\":0}\n{\"type\":\"chunk_end\"}\n{}\n"))
	f.Add([]byte("noise\n{\"a\":1}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := rpc.NewStdio(bytes.NewReader(b), io.Discard, nil)
		for range len(b) + 1 {
			m, err := conn.Receive(t.Context())
			if errors.Is(err, io.EOF) || errors.Is(err, rpc.ErrClosed) {
				return
			}
			if err != nil || len(m) > rpc.MaxMessage {
				t.Fatalf("%d bytes, %v", len(m), err)
			}
		}
		t.Error("more messages than bytes")
	})
}

// What one end sends, the other reads, whatever its bytes.
func FuzzStdioRoundTrip(f *testing.F) {
	f.Add("x", 40_000)
	f.Add("é\\\"", 20_000)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if len(text) == 0 || n < 0 || n > 100_000 {
			return
		}
		message, err := rpc.Encode(map[string]string{"t": string(bytes.Repeat([]byte(text), n/len(text)+1))})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := rpc.NewStdio(nil, &b, nil).Send(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		got, err := rpc.NewStdio(&b, nil, nil).Receive(t.Context())
		if err != nil || !bytes.Equal(got, message) {
			t.Errorf("%d bytes came as %d, %v", len(message), len(got), err)
		}
	})
}

// Where a document ends is where JSON has it.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":"}"}`, `{"a":[{}]} `, `{"\"":1`, `{"a":"\\"}`, `x`, ``} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		whole := rpc.Scan(b)
		if at > 0 && at < len(b) && rpc.Scan(b[:at], b[at:]) != whole {
			t.Error("pieces make another of it")
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(b, &object) != nil || object == nil {
			return
		}
		if whole != "ended" {
			t.Errorf("an object is %s", whole)
		}
		if end := bytes.LastIndexByte(b, '}'); rpc.Scan(b[:end]) != "open" {
			t.Error("it ends before its end")
		}
	})
}

func FuzzFileChunk(f *testing.F) {
	f.Add([]byte(`{"file_key":"a.zip","file_length":3,"chunk_base64":"YWJj","chunk_index":0,"chunk_amount":1,"chunk_size":3}`))
	f.Add([]byte(`{"file_key":"a","chunk_base64":"","chunk_index":1,"chunk_amount":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		limits := rpc.FileLimits{MaxBytes: 100, MaxTotal: 150, MaxFiles: 2}
		if total := rpc.KeepChunks(limits, b, b); total > 150 {
			t.Errorf("%d bytes are kept", total)
		}
	})
}

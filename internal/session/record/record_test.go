package record_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/session/record"
)

const good = `{"id":"bx_a","owner":"uid:1","key":"k","state":"live","sandbox":"box-a","spec":{},"image":"","workspace":{"kind":"private"},"created_at":"2026-01-02T03:04:05Z","last_used_at":"2026-01-02T03:04:05Z"}`

func TestParse(t *testing.T) {
	if _, err := record.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":           "",
		"unknown-field":   strings.Replace(good, `"key"`, `"promise":1,"key"`, 1),
		"unknown-in-spec": strings.Replace(good, `"spec":{}`, `"spec":{"promise":1}`, 1),
		"more-follows":    good + "{}",
		"no-such-state":   strings.Replace(good, `"live"`, `"lively"`, 1),
		"no-owner":        strings.Replace(good, `"uid:1"`, `""`, 1),
		"no-key":          strings.Replace(good, `"k"`, `""`, 1),
		"no-sandbox":      strings.Replace(good, `"box-a"`, `""`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := record.Parse([]byte(text)); err == nil {
				t.Errorf("Parse = %+v, want an error", r)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := record.Parse(b)
		if err != nil {
			return
		}
		out, err := record.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := record.Parse(out)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		twice, _ := record.Marshal(again)
		if !bytes.Equal(out, twice) {
			t.Error(cmp.Diff(string(out), string(twice)))
		}
	})
}

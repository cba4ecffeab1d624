package netlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api"
)

// maxLine bounds a line, its newline included: a record whose fields are at
// their bounds, each byte of them escaped, is shorter.
const maxLine = 32 << 10

// maxNumber is more than is ever counted to, and leaves room to count on.
const maxNumber = 1 << 62

// Bounds of a record's fields, in bytes.
const (
	maxHost    = 255
	maxPath    = 1 << 10
	maxReason  = 512
	maxResult  = 512
	maxWord    = 64
	maxSecrets = 16
)

// bound keeps every field short and valid UTF-8: what a guest says is in them.
func bound(r *Record) {
	for _, f := range []struct {
		s   *string
		max int
	}{
		{&r.Sandbox, maxWord},
		{(*string)(&r.Verdict), maxWord},
		{&r.Code, maxWord},
		{&r.Rule, maxWord},
		{&r.Protocol, maxWord},
		{&r.Address, maxWord},
		{&r.Method, maxWord},
		{&r.Host, maxHost},
		{&r.Path, maxPath},
		{&r.Reason, maxReason},
		{&r.Result, maxResult},
	} {
		*f.s = short(*f.s, f.max)
	}
	if len(r.Secrets) > maxSecrets {
		r.Secrets = r.Secrets[:maxSecrets:maxSecrets]
	}
	for i, name := range r.Secrets {
		if s := short(name, maxWord); s != name {
			r.Secrets = append([]string(nil), r.Secrets...) // it may be its owner's
			r.Secrets[i] = s
		}
	}
}

// Bounded returns r with every field short and valid UTF-8, for records that no Writer
// writes.
func Bounded(r Record) Record {
	bound(&r)
	return r
}

// short returns s as valid UTF-8 of at most n bytes, with an ellipsis where it
// was longer.
func short(s string, n int) string {
	const ellipsis = "…"
	if len(s) > n {
		end := n - len(ellipsis)
		for range utf8.UTFMax - 1 {
			if utf8.RuneStart(s[end]) {
				break
			}
			end--
		}
		s = s[:end] + ellipsis
	}
	return strings.ToValidUTF8(s, "?")
}

// encode appends r as one line, of which every character can be printed: what
// a terminal would obey, or show in another order, is escaped.
func encode(to []byte, r *Record) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return to, fmt.Errorf("record: %w", err)
	}
	line := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	for len(line) > 0 {
		plain := 0
		for plain < len(line) && ' ' <= line[plain] && line[plain] <= '~' {
			plain++
		}
		to, line = append(to, line[:plain]...), line[plain:]
		if len(line) == 0 {
			break
		}
		c, n := utf8.DecodeRune(line)
		if unicode.IsPrint(c) {
			to = append(to, line[:n]...)
		} else {
			to = appendEscaped(to, c)
		}
		line = line[n:]
	}
	return append(to, '\n'), nil
}

func appendEscaped(to []byte, c rune) []byte {
	if c <= 0xffff {
		return fmt.Appendf(to, `\u%04x`, c)
	}
	c -= 0x10000
	return fmt.Appendf(to, `\u%04x\u%04x`, 0xd800+(c>>10), 0xdc00+(c&0x3ff))
}

// decode reads a line. ok is false for what is no record.
func decode(line []byte) (r Record, ok bool) {
	if len(line) > maxLine || json.Unmarshal(line, &r) != nil || r.Seq == 0 || r.Seq > maxNumber {
		return Record{}, false
	}
	bound(&r)
	return r, true
}

// header begins a file: how often the two files have taken turns. It is how a
// reader knows that a file is not what it was.
type header struct {
	Turn uint64 `json:"turn"`
}

const maxHeader = 64

func (h header) line() []byte { return fmt.Appendf(nil, "{\"turn\":%d}\n", h.Turn) }

// parseHeader reads the header at the beginning of a file; 0 is none.
func parseHeader(head []byte) uint64 {
	line, _, ok := bytes.Cut(head[:min(len(head), maxHeader)], []byte("\n"))
	var h header
	if !ok || json.Unmarshal(line, &h) != nil || h.Turn > maxNumber {
		return 0
	}
	return h.Turn
}

// Verdict is what became of what a sandbox tried.
type Verdict = string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
	// Ask is of what waits for a person's answer; another record has what came of it.
	Ask Verdict = "ask"
)

// Service is the protocol of a call of a service that a program outside offers.
const Service = "service"

// Record is one line of a sandbox's record: one DNS question, connection,
// request, or run of refused packets. The Writer sets its number, without gaps,
// and its sandbox.
type Record = api.NetRecord

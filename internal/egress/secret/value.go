package secret

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// hidden is how a value is printed.
const hidden = "[secret]"

// Value is the value of a secret. However it is printed, logged or encoded, it
// reads "[secret]"; Reveal alone tells it. The zero Value is none.
type Value struct {
	// p is a function since fmt, with a field that it may not call methods of,
	// prints what everything else holds or points to.
	p func() *[]byte
}

// NewValue returns a copy of b as a value.
func NewValue(b []byte) Value {
	c := append([]byte(nil), b...)
	return Value{func() *[]byte { return &c }}
}

// Reveal returns the value itself: for whom it is meant, and nobody else.
func (v Value) Reveal() string {
	if v.p == nil {
		return ""
	}
	return string(*v.p())
}

// Empty reports whether there is no value.
func (v Value) Empty() bool { return v.p == nil || len(*v.p()) == 0 }

// Wipe overwrites the value, for all copies of v. What Reveal returned before
// is not reached.
func (v Value) Wipe() {
	if v.p != nil {
		b := v.p()
		clear(*b)
		*b = nil
	}
}

// Format implements fmt.Formatter, for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// String implements fmt.Stringer.
func (Value) String() string { return hidden }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler, for every encoding that asks.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// UnmarshalText refuses: what MarshalText wrote is no value.
func (*Value) UnmarshalText([]byte) error {
	return errors.New("a secret's value is not decoded from text")
}

package offer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Protocol is what a connection becomes that an offer is made on.
const Protocol = "carboy-offer"

// Codes of what a gate refuses an offer for.
const (
	CodeTaken   = "offer_taken"    // somebody else serves under that name
	CodeUnknown = "offer_unknown"  // the sandbox's policy has no such service
	codeInvalid = "offer_invalid"  // the greeting is none
	codeFull    = "offers_at_once" // more connections than a gate takes
)

const (
	maxLine    = 1 << 10 // bytes, either way
	greetLimit = 10 * time.Second
)

// hello is the first line of who offers.
type hello struct {
	Service string `json:"service"`
}

// RefusedError is a gate's answer to an offer that it does not take. It is sent as
// it is: no Code means that the offer stands.
type RefusedError struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Error is what was wrong, for people.
func (e *RefusedError) Error() string { return e.Message }

// Greet offers a service on a connection to a gate's socket. What the gate
// refuses is a *RefusedError. The connection is Serve's after that.
func Greet(ctx context.Context, c net.Conn, service string) error {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	_ = c.SetDeadline(time.Now().Add(greetLimit))
	line, err := json.Marshal(hello{service})
	if err != nil {
		return err
	}
	if _, err := c.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("greet the gate: %w", err)
	}
	var answer RefusedError
	if err := readLine(c, &answer); err != nil {
		return fmt.Errorf("read the gate's answer: %w", err)
	}
	if answer.Code != "" {
		return &answer
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// readLine decodes one line, byte by byte: what follows it is not ours to read.
func readLine(r io.Reader, into any) error {
	line := make([]byte, 0, 128)
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, one); err != nil {
			return err
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) > maxLine {
			return errors.New("a line that is too long")
		}
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("more than one value on a line")
	}
	return nil
}

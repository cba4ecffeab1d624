package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
)

const (
	// limit bounds a call that names no time of its own.
	limit = 30 * time.Second
	// grace is what a call may take besides the time that it gives the guest.
	grace = 10 * time.Second
)

// ErrReply is what a guest said that is no reply to the request.
var ErrReply = errors.New("the guest's reply is not a JSON object as it should be")

// AgentError is why the guest did not do what it was asked, in its words.
type AgentError struct{ Message string }

// Error is what the guest said.
func (e *AgentError) Error() string { return e.Message }

// Client asks guests. Its methods may be called from several goroutines.
type Client struct{ dialer Dialer }

// New makes a Client that connects by d.
func New(d Dialer) *Client { return &Client{dialer: d} }

// call sends a request, and what follows it, and hands the connection to read, all within
// a time.
func (c *Client) call(ctx context.Context, at Address, within time.Duration, request any, body io.Reader, read func(io.Reader) error) error {
	line, err := header(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("the guest did not answer within %v", within))
	defer cancel()
	conn, err := c.dial(ctx, at)
	if err != nil {
		return timely(ctx, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	sent := send(conn, line, body)
	if _, ours := errors.AsType[*bodyError](sent); ours { // the guest waits for the rest
		return sent
	}
	err = read(conn)
	if _, told := errors.AsType[*AgentError](err); sent != nil && !told { // a guest may refuse before it has read all
		err = sent
	}
	return timely(ctx, err)
}

// timely is err, or why ctx has ended, which is what a connection failed of then.
func timely(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func send(conn io.Writer, line []byte, body io.Reader) error {
	if _, err := conn.Write(line); err != nil || body == nil {
		return err
	}
	_, err := io.Copy(conn, body)
	return err
}

// ask is call for a reply that is one object.
func ask[T any](ctx context.Context, c *Client, at Address, within time.Duration, request any, body io.Reader) (*T, error) {
	reply := new(T)
	err := c.call(ctx, at, within, request, body, func(r io.Reader) error {
		raw, rerr := io.ReadAll(io.LimitReader(r, action.MaxReply+1))
		err := parse(raw, reply)
		if _, told := errors.AsType[*AgentError](err); rerr != nil && !told { // it refused, and did not read the rest
			return fmt.Errorf("read the guest's reply: %w", rerr)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// parse reads a reply, which has to have every field.
func parse(raw []byte, into any) error {
	if len(raw) > action.MaxReply {
		return fmt.Errorf("%w: it is longer than %d bytes", ErrReply, action.MaxReply)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return fmt.Errorf("%w: %.80q", ErrReply, raw)
	}
	if said, ok := fields["error"]; ok {
		var message string
		if err := json.Unmarshal(said, &message); err != nil {
			return fmt.Errorf("%w: its error is %.80q", ErrReply, said)
		}
		return &AgentError{Message: message}
	}
	for _, name := range required(reflect.TypeOf(into).Elem()) {
		if _, ok := fields[name]; !ok {
			return fmt.Errorf("%w: it has no %s", ErrReply, name)
		}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	return nil
}

// required returns the names of the fields that are always in a type's JSON.
func required(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, options, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && options == "" {
			names = append(names, name)
		}
	}
	return names
}

// header is a request's line. As Python writes it, there is a space after each colon and
// comma: older guests' clients are known by that.
func header(request any) ([]byte, error) {
	raw, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	quoted := false
	for i, b := range raw {
		line.WriteByte(b)
		switch {
		case b == '"' && !escaped(raw[:i]):
			quoted = !quoted
		case !quoted && (b == ':' || b == ','):
			line.WriteByte(' ')
		}
	}
	line.WriteByte('\n')
	if line.Len() > action.MaxHeader {
		return nil, fmt.Errorf("a request of %d bytes is longer than a guest reads: at most %d", line.Len(), action.MaxHeader)
	}
	return line.Bytes(), nil
}

// escaped reports whether what follows is preceded by an odd number of backslashes.
func escaped(before []byte) bool {
	return (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 1
}

package action

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

var (
	errNoObject = errors.New("a request has to be a JSON object")
	errLate     = errors.New("no whole request came in time")
	errLong     = fmt.Errorf("the request is longer than %d bytes", action.MaxHeader)
)

// readHeader reads one JSON object and no byte more than it needs to know its end: a
// caller may wait for the reply without having ended a line. What follows the object
// is rest; more is as much of it as came along.
func readHeader(in io.Reader) (raw, more []byte, rest io.Reader, err error) {
	head := &io.LimitedReader{R: in, N: action.MaxHeader + 1}
	r := bufio.NewReaderSize(head, 4<<10)
	first, err := firstByte(r)
	switch {
	case err != nil:
		return nil, nil, nil, headerError(err, head)
	case first != '{':
		return nil, nil, nil, errNoObject
	}
	dec := json.NewDecoder(r)
	var object json.RawMessage
	if err := dec.Decode(&object); err != nil {
		return nil, nil, nil, headerError(err, head)
	}
	if len(object) > action.MaxHeader {
		return nil, nil, nil, errLong
	}
	head.N = math.MaxInt64               // what follows has a bound of its own
	more, _ = io.ReadAll(dec.Buffered()) // it is in memory
	return object, more, io.MultiReader(bytes.NewReader(more), r), nil
}

// firstByte returns the first byte that is no space, and leaves it to be read.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(b)) {
			return b, r.UnreadByte()
		}
	}
}

// headerError says in words why there is no request.
func headerError(err error, head *io.LimitedReader) error {
	came := action.MaxHeader + 1 - head.N
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		if strings.Contains(se.Error(), "depth") {
			return errors.New("the request is nested too deep")
		}
		return fmt.Errorf("the request is not JSON, at byte %d", se.Offset)
	}
	switch {
	case head.N <= 0:
		return errLong
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errLate
	case came == 0 && errors.Is(err, io.EOF):
		return errors.New("the connection ended before a request came")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the request ends in its middle, after %d bytes", came)
	}
	return fmt.Errorf("read the request: %w", err)
}

// work is what a request asks for. Its result is the reply.
type work func(c *call) (any, error)

// handle makes requests of one form work. The form is checked before anything is done.
func handle[Q any](run func(*call, *Q) (any, error)) func([]byte) (work, error) {
	return func(raw []byte) (work, error) {
		q := new(Q)
		if err := strict.Unmarshal(raw, q); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		return func(c *call) (any, error) { return run(c, q) }, nil
	}
}

// actions are all that can be asked for, by the names of requests.
var actions = map[string]func([]byte) (work, error){
	action.Exec:           handle((*call).exec),
	action.ExtractArchive: handle((*call).extract),
	action.ExportArchive:  handle((*call).export),
	action.OpenShell:      handle((*call).openShell),
	action.ReadShell:      handle((*call).readShell),
	action.WriteShell:     handle((*call).writeShell),
	action.SignalShell:    handle((*call).signalShell),
	action.CloseShell:     handle((*call).closeShell),
	action.StatusShell:    handle((*call).statusShell),
	action.ResizeShell:    handle((*call).resizeShell),
	action.ListShells:     handle((*call).listShells),
	action.StartService:   handle((*call).startService),
	action.StatusService:  handle((*call).statusService),
	action.LogsService:    handle((*call).logsService),
	action.StopService:    handle((*call).stopService),
	action.ListServices:   handle((*call).listServices),
	action.ListFiles:      handle((*call).listFiles),
	action.ReadFile:       handle((*call).readFile),
	action.WriteFile:      handle((*call).writeFile),
}

// parse finds out what a request asks for. Nothing but an archive may follow it, as
// far as that has come: a second request is none that a connection has.
func parse(raw, more []byte) (work, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("the request is no UTF-8")
	}
	var asked struct {
		Action  *string          `json:"action"`
		Command *json.RawMessage `json:"command"`
	}
	if err := strict.Known(raw, &asked); err != nil {
		return nil, errors.New("the field action has to be a string")
	}
	name := action.Exec
	switch {
	case asked.Action != nil:
		name = *asked.Action
	case asked.Command == nil:
		return nil, errors.New("the request has neither an action nor a command")
	}
	if name == action.InstallSecrets {
		return nil, fail(kindUnsupported, "secrets are not installed into a sandbox: the gate keeps them, and puts them into what is sent out")
	}
	decode, ok := actions[name]
	if !ok {
		return nil, fmt.Errorf("there is no action %.64q", name)
	}
	if name != action.ExtractArchive && len(bytes.TrimSpace(more)) > 0 {
		return nil, errors.New("a connection has one request: something follows it")
	}
	return decode(raw)
}

// endLine reads the rest of a request's line, which a body follows.
func (c *call) endLine() error {
	var b [1]byte
	for {
		switch _, err := io.ReadFull(c.rest, b[:]); {
		case err != nil:
			return errors.New("the archive is missing: it follows the request's line")
		case b[0] == '\n':
			return nil
		case !slices.Contains([]byte(" \t\r"), b[0]):
			return errors.New("the archive has to follow on a new line")
		}
	}
}

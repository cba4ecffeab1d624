package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

func reading(text string) rpc.Conn {
	return rpc.NewStdio(strings.NewReader(text), io.Discard, func() error { return nil })
}

func TestStdioReads(t *testing.T) {
	const start, end = `{"type": "chunk_start", "total_size": %d}` + "\n", `{"type": "chunk_end"}` + "\n"
	data := func(offset int, text string) string {
		b, _ := json.Marshal(map[string]any{"type": "chunk_data", "data": text, "offset": offset})
		return string(b) + "\n"
	}
	tests := []struct {
		name, text, want string
		broken           bool
	}{
		{"line", `{"a":1}` + "\n", `{"a":1}`, false},
		{"crlf", `{"a":1}` + "\r\n", `{"a":1}`, false},
		{"no-end", `{"a":1}`, `{"a":1}`, false},
		{"type-of-its-own", `{"type":"x"}` + "\n", `{"type":"x"}`, false},
		{"chunks", fmt.Sprintf(start, 7) + data(0, `{"a"`) + data(4, `:1}`) + end, `{"a":1}`, false},
		{"chunks-of-runes", fmt.Sprintf(start, 8) + data(0, `{"é"`) + data(5, `:1}`) + " \n" + end, `{"é":1}`, false},
		{"noise-between-chunks", fmt.Sprintf(start, 7) + "starting\n" + data(0, `{"a":1}`) + "\n" + end, `{"a":1}`, false},
		{"stray-chunks", data(0, "x") + end + `{"a":1}` + "\n", `{"a":1}`, false},
		{"gap", fmt.Sprintf(start, 7) + data(1, `{"a":1}`) + end, "", true},
		{"more-than-said", fmt.Sprintf(start, 6) + data(0, `{"a":1}`) + end, "", true},
		{"less-than-said", fmt.Sprintf(start, 8) + data(0, `{"a":1}`) + end, "", true},
		{"negative", fmt.Sprintf(start, -1), "", true},
		{"too-large", fmt.Sprintf(start, rpc.MaxMessage+1), "", true},
		{"no-size", `{"type":"chunk_start"}` + "\n", "", true},
		{"within-another", fmt.Sprintf(start, 7) + fmt.Sprintf(start, 7), "", true},
		{"ends-within", fmt.Sprintf(start, 7) + data(0, `{"a"`), "", true},
		{"too-many", fmt.Sprintf(start, 7) + strings.Repeat(data(0, ""), rpc.MaxFragments) + end, "", true},
		{"line-too-long", `{"` + strings.Repeat("x", rpc.MaxMessage) + `"}` + "\n", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := reading(tt.text).Receive(t.Context())
			switch {
			case tt.broken && !errors.Is(err, rpc.ErrClosed):
				t.Errorf("Receive = %.80q, %v, want ErrClosed", got, err)
			case !tt.broken && (err != nil || string(got) != tt.want):
				t.Errorf("Receive = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	if _, err := reading("").Receive(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("the end = %v, want io.EOF", err)
	}
}

// The original reads lines of at most 64 KiB.
func TestStdioLinesAreShort(t *testing.T) {
	for _, text := range []string{"x", "\"", "\\", "é", "\u2028", "\x01"} {
		var b bytes.Buffer
		message, err := rpc.Encode(map[string]string{"t": strings.Repeat(text, 200_000)})
		if err != nil {
			t.Fatal(err)
		}
		if err := rpc.NewStdio(nil, &b, nil).Send(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b.Bytes()) {
			if len(line) > 64<<10 {
				t.Errorf("%q: a line of %d bytes", text, len(line))
			}
		}
		got, err := reading(b.String()).Receive(t.Context())
		if err != nil || !bytes.Equal(got, message) {
			t.Errorf("%q: %d bytes came as %d, %v", text, len(message), len(got), err)
		}
	}
}

func TestWebSocketReads(t *testing.T) {
	large, err := rpc.Encode(map[string]string{"t": strings.Repeat("é", 150_000)})
	if err != nil {
		t.Fatal(err)
	}
	pieces := func(b []byte) (out [][]byte) {
		for len(b) > 64<<10 {
			n := 64 << 10
			for b[n]&0xc0 == 0x80 {
				n--
			}
			out, b = append(out, b[:n]), b[n:]
		}
		return append(out, b)
	}
	ping := []byte(`{"seq_id":1}`)
	tests := []struct {
		name string
		send [][]byte
		want []byte // the last that is read
	}{
		{"one", [][]byte{ping}, ping},
		{"large", [][]byte{large}, large},
		{"pieces", pieces(large), large},
		{"pieces-then-one", append(pieces(large), ping), ping},
		{"cut-off-short", [][]byte{large[:100], ping}, ping},
		{"cut-off-long", [][]byte{large[:64<<10], ping}, ping},
		{"cut-off-then-pieces", append([][]byte{large[:64<<10]}, pieces(large)...), nil},
		{"garbage", [][]byte{bytes.Repeat([]byte("x"), 70_000), ping}, ping},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc, cc := webSockets(t)
			conn := rpc.NewWebSocket(sc, rpc.WebSocketOptions{})
			go func() {
				for _, m := range tt.send {
					_ = cc.Write(t.Context(), websocket.MessageText, m)
				}
				_ = cc.Write(t.Context(), websocket.MessageText, []byte(`{"end":1}`))
			}()
			var last []byte
			for {
				got, err := conn.Receive(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if string(got) == `{"end":1}` {
					break
				}
				last = got
			}
			if tt.want != nil && !bytes.Equal(last, tt.want) {
				t.Errorf("the last of %d bytes, want %d", len(last), len(tt.want))
			}
		})
	}
}

func TestWebSocketRefuses(t *testing.T) {
	tests := []struct {
		name string
		send func(ctx context.Context, c *websocket.Conn) error
		code websocket.StatusCode
	}{
		{"binary", func(ctx context.Context, c *websocket.Conn) error {
			return c.Write(ctx, websocket.MessageBinary, []byte("{}"))
		}, websocket.StatusUnsupportedData},
		{"too-large", func(ctx context.Context, c *websocket.Conn) error {
			return c.Write(ctx, websocket.MessageText, make([]byte, rpc.MaxMessage+1))
		}, websocket.StatusMessageTooBig},
		{"too-large-in-pieces", func(ctx context.Context, c *websocket.Conn) error {
			piece := []byte(`{"` + strings.Repeat("x", 1<<20))
			for range 17 {
				if err := c.Write(ctx, websocket.MessageText, piece); err != nil {
					return err
				}
				piece = piece[2:]
				piece = slices.Grow(piece, 2)[:1<<20]
			}
			return nil
		}, websocket.StatusMessageTooBig},
		{"too-many-fragments", func(ctx context.Context, c *websocket.Conn) error {
			w, err := c.Writer(ctx, websocket.MessageText)
			if err != nil {
				return err
			}
			for range 3 * rpc.MaxFragments {
				if _, err := w.Write([]byte("x")); err != nil {
					return err
				}
			}
			return w.Close()
		}, websocket.StatusPolicyViolation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc, cc := webSockets(t)
			conn := rpc.NewWebSocket(sc, rpc.WebSocketOptions{})
			go func() { _ = tt.send(t.Context(), cc) }()
			ended := make(chan error, 1)
			go func() {
				_, _, err := cc.Read(t.Context())
				ended <- err
			}()
			if got, err := conn.Receive(t.Context()); err == nil {
				t.Errorf("Receive = %.40q", got)
			}
			if err := <-ended; websocket.CloseStatus(err) != tt.code {
				t.Errorf("the other side sees %v, want %v", err, tt.code)
			}
		})
	}
}

// flood asks without end, and reads no answer.
type flood struct {
	asked  int
	asking chan struct{}
	closed chan struct{}
	sent   atomic.Int32
}

func (f *flood) Receive(context.Context) ([]byte, error) {
	select {
	case <-f.closed:
		return nil, io.EOF
	default:
	}
	f.asked++
	f.asking <- struct{}{}
	return fmt.Appendf(nil, `{"seq_id":%d,"action":"x","data":{}}`, f.asked), nil
}

func (f *flood) Send(context.Context, []byte) error {
	f.sent.Add(1)
	<-f.closed
	return rpc.ErrClosed
}

func (f *flood) Close() error {
	select {
	case <-f.closed:
	default:
		close(f.closed)
	}
	return nil
}

// Of who does not read its answers no more is read than may be under way, and no
// more than one answer is made.
func TestSlowReader(t *testing.T) {
	f := &flood{asking: make(chan struct{}), closed: make(chan struct{})}
	var made atomic.Int32
	p := rpc.NewPeer(rpc.Options{
		Conn:  f,
		Serve: func(context.Context, *langbot.Request) (any, error) { return counted{&made}, nil },
	})
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()
	for range rpc.MaxInFlight + 1 { // one is told that there are too many
		<-f.asking
	}
	n, sent := made.Load(), f.sent.Load() // nobody reads any of them yet
	_ = f.Close()
	<-ended
	if f.asked != rpc.MaxInFlight+1 {
		t.Errorf("%d requests were read", f.asked)
	}
	if n > 1 || sent > 1 {
		t.Errorf("%d answers were made, and %d sent", n, sent)
	}
}

// counted counts how often it becomes JSON.
type counted struct{ n *atomic.Int32 }

func (c counted) MarshalJSON() ([]byte, error) {
	c.n.Add(1)
	return []byte("{}"), nil
}

func TestFileLimits(t *testing.T) {
	chunk := func(key string, index, amount int, data string, more string) string {
		return fmt.Sprintf(`{"seq_id":1,"action":"__file_chunk","data":{"file_key":%q,"chunk_index":%d,"chunk_amount":%d,"chunk_base64":%q%s}}`, key, index, amount, data, more) + "\n"
	}
	full := strings.Repeat("AAAA", 1<<10) // 3 KiB
	tests := []struct {
		name  string
		lines []string
		want  string // of the last answer; "": it is kept
	}{
		{"whole", []string{chunk("a.zip", 0, 1, "YWJj", `,"file_length":3,"chunk_size":3`)}, ""},
		{"in-two", []string{chunk("a", 0, 2, "YWJj", ""), chunk("a", 1, 2, "YWJj", "")}, ""},
		{"anew", []string{chunk("a", 0, 2, "YWJj", ""), chunk("a", 0, 2, "YWJj", "")}, ""},
		{"path", []string{chunk("../a", 0, 1, "", "")}, "invalid file_key"},
		{"dots", []string{chunk("a..b", 0, 1, "", "")}, "invalid file_key"},
		{"space", []string{chunk(" a", 0, 1, "", "")}, "invalid file_key"},
		{"beyond", []string{chunk("a", 1, 1, "", "")}, "invalid position"},
		{"no-first", []string{chunk("a", 1, 2, "", "")}, "first chunk is number 0"},
		{"left-out", []string{chunk("a", 0, 3, "", ""), chunk("a", 2, 3, "", "")}, "does not follow"},
		{"another-amount", []string{chunk("a", 0, 3, "", ""), chunk("a", 1, 4, "", "")}, "does not follow"},
		{"no-base64", []string{chunk("a", 0, 1, "?", "")}, "no base64"},
		{"wrong-size", []string{chunk("a", 0, 1, "YWJj", `,"chunk_size":4`)}, "chunk_size is 4"},
		{"large-chunk", []string{chunk("a", 0, 1, strings.Repeat("AAAA", 6<<10), "")}, "at most 16384 bytes"},
		{"another-case", []string{chunk("a", 0, 1, "YWJj", `,"CHUNK_SIZE":4,"File_Key":"../a"`)}, ""},
		{"large-file-said", []string{chunk("a", 0, 1, "", `,"file_length":8193`)}, "at most 8192 bytes"},
		{"large-file", []string{chunk("a", 0, 9, full, ""), chunk("a", 1, 9, full, ""), chunk("a", 2, 9, full, "")}, "at most 8192 bytes"},
		{"all-of-them", []string{chunk("a", 0, 9, full, ""), chunk("b", 0, 9, full, ""), chunk("c", 0, 9, full, ""), chunk("d", 0, 9, full, "")}, "over 10000 bytes"},
		{"too-many", []string{chunk("a", 0, 9, "", ""), chunk("b", 0, 9, "", ""), chunk("c", 0, 9, "", ""), chunk("d", 0, 9, "", ""), chunk("e", 0, 9, "", "")}, "4 files wait"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := oneByOne(t, rpc.FileLimits{MaxBytes: 8192, MaxTotal: 10_000, MaxFiles: 4}, nil, tt.lines); !strings.Contains(got, tt.want) || tt.want == "" && !strings.Contains(got, `"code":0`) {
				t.Errorf("answer %.300s, want %q", got, tt.want)
			}
		})
	}
	t.Run("old-ones-make-room", func(t *testing.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		lines := []string{chunk("a", 0, 9, "", ""), chunk("b", 0, 9, "", "")}
		tick := func() time.Time { now = now.Add(11 * time.Minute); return now }
		if got := oneByOne(t, rpc.FileLimits{MaxFiles: 1}, tick, lines); !strings.Contains(got, `"code":0`) {
			t.Errorf("answer %s", got)
		}
	})
}

// oneByOne sends lines to a peer, each when the one before was answered, and
// returns the last answer.
func oneByOne(t *testing.T, limits rpc.FileLimits, now func() time.Time, lines []string) (last string) {
	t.Helper()
	c, s := net.Pipe()
	p := rpc.NewPeer(rpc.Options{Conn: rpc.NewStdio(s, s, s.Close), Files: limits, Now: now})
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(context.Background()) }()
	defer func() { _ = c.Close(); <-done }()
	answers := rpc.NewStdio(c, c, c.Close)
	for _, line := range lines {
		if _, err := io.WriteString(c, line); err != nil {
			t.Fatal(err)
		}
		got, err := answers.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last = string(got)
	}
	return last
}

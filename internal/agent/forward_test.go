package agent_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/agent"
)

// An agent whose answer has no end is not listened to for long. What follows a
// good answer is a stream, of any length.
func TestForwardBoundsTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, answer, piece string
		ok                  bool
	}{
		{"endless-header", "HTTP/1.1 200 OK\r\n", "A: " + strings.Repeat("b", 4000) + "\r\n", false},
		{"endless-status", "HTTP/1.1 200 ", strings.Repeat("c", 4000), false},
		{"stream", "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("d", 4000), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			wrote := make(chan int)
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
					t.Error(err)
				}
				n, _ := io.WriteString(theirs, tt.answer)
				for n < 4<<20 {
					m, err := io.WriteString(theirs, tt.piece)
					if n += m; err != nil {
						break
					}
				}
				theirs.Close()
				wrote <- n
			}()
			c, err := agent.Forward(t.Context(), ours, 80)
			if err == nil {
				_, err = io.Copy(io.Discard, c)
			}
			if n := <-wrote; (err == nil) != tt.ok || (n < 4<<20) == tt.ok {
				t.Errorf("%v, after %d bytes", err, n)
			}
		})
	}
}

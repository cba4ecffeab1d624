package session

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A disk that stays full is logged once, however often it is asked for.
func TestMaySleep(t *testing.T) {
	var said bytes.Buffer
	var room uint64
	r := &diskRoom{log: slog.New(slog.NewTextHandler(&said, nil)), free: func() uint64 { return room }}
	lines := 0
	for _, tt := range []struct {
		room uint64
		may  bool
		more int
	}{{noRoom, true, 0}, {noRoom - 1, false, 1}, {0, false, 0}, {noRoom, true, 1}, {1 << 40, true, 0}} {
		room = tt.room
		lines += tt.more
		if got := r.maySleep(); got != tt.may || strings.Count(said.String(), "\n") != lines {
			t.Errorf("with %d bytes: %v, and it says\n%s", room, got, said.String())
		}
	}
}

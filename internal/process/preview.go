package process

import (
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// PreviewLimit is how many characters of a process's errors are shown.
const PreviewLimit = 4000

const previewBytes = PreviewLimit * utf8.UTFMax

// What is logged of the errors.
const (
	logWindow = time.Second
	logChunks = 4 // in a window
	logChars  = 512
)

// preview keeps the newest of a process's errors.
type preview struct {
	mu    sync.Mutex
	bytes []byte // at most twice previewBytes

	since      time.Time
	said, kept int // chunks that were logged in the window, and that were not
}

func (v *preview) add(b []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b = b[max(0, len(b)-previewBytes):]
	if len(v.bytes)+len(b) > 2*previewBytes {
		n := copy(v.bytes, v.bytes[max(0, len(v.bytes)-previewBytes):])
		v.bytes = v.bytes[:n]
	}
	v.bytes = append(v.bytes, b...)
}

// text returns the newest characters; bytes that are none are replaced, and
// blanks at the end left out.
func (v *preview) text() string {
	v.mu.Lock()
	b := string(v.bytes[max(0, len(v.bytes)-previewBytes):])
	v.mu.Unlock()
	b = strings.TrimRight(strings.ToValidUTF8(b, "\uFFFD"), " \t\r\n")
	chars := utf8.RuneCountInString(b)
	for ; chars > PreviewLimit; chars-- {
		_, n := utf8.DecodeRuneInString(b)
		b = b[n:]
	}
	return b
}

// say logs the beginning of a chunk, of four in a second.
func (v *preview) say(log *slog.Logger, b []byte, now time.Time) {
	if len(b) == 0 {
		return
	}
	v.mu.Lock()
	if now.Sub(v.since) >= logWindow {
		v.flushLocked(log)
		v.since, v.said = now, 0
	}
	v.said++
	if v.said > logChunks {
		v.kept++
		v.mu.Unlock()
		return
	}
	v.mu.Unlock()
	text := strings.ToValidUTF8(string(b[:min(len(b), logChars)]), "\uFFFD")
	log.Debug("a managed process's stderr", "text", strings.TrimSpace(text), "bytes", len(b))
}

// flush says how much was not logged.
func (v *preview) flush(log *slog.Logger) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flushLocked(log)
}

func (v *preview) flushLocked(log *slog.Logger) {
	if v.kept > 0 {
		log.Debug("more of a managed process's stderr was not logged", "chunks", v.kept)
		v.kept = 0
	}
}

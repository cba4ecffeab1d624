package template

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of one build's log.
const (
	maxLogBytes = 4 << 20
	maxLogTail  = 1 << 20 // of them, for its end
	maxLogLine  = 4 << 10 // bytes of a line of output
	// MaxLogs is how many entries one answer has at most.
	MaxLogs = 100
)

// Level says how much an entry matters.
type Level string

// The levels, in order.
const (
	levelDebug Level = "debug"
	levelInfo  Level = "info"
	levelWarn  Level = "warn"
	levelError Level = "error"
)

var levels = []Level{levelDebug, levelInfo, levelWarn, levelError}

// Entry is one line of a build's log. Its text is escaped.
type Entry struct {
	Time  time.Time `json:"timestamp"`
	Text  string    `json:"message"`
	Level Level     `json:"level"`
	Step  string    `json:"step,omitempty"`
}

// LogQuery selects entries.
type LogQuery struct {
	Offset   int       // how many are left out first
	Limit    int       // at most; 0: none, and never more than MaxLogs
	Level    Level     // and above; "": all
	After    time.Time // from then on; or before it, with Backward
	Backward bool      // the newest first
}

// logs are those of builds, a file for each.
type logs struct {
	dir string
	now func() time.Time
}

func (l logs) path(build string) string { return filepath.Join(l.dir, build+".jsonl") }

// remove removes the log of a build; there need be none.
func (l logs) remove(build string) { _ = os.Remove(l.path(build)) }

// journal is the log of a build under way.
type journal struct {
	now func() time.Time

	mu   sync.Mutex
	f    *os.File
	size int
	step string
	// Once there is no more room for the beginning, the end is held here until the build ends.
	full     bool
	tail     [][]byte
	tailSize int
	leftOut  int    // lines between
	part     []byte // of a line that is not whole
}

func (l logs) open(build string) (*journal, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(l.path(build), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, diskError(err)
	}
	return &journal{f: f, now: l.now}, nil
}

func (j *journal) close() {
	j.settle()
	_ = j.f.Close()
}

// settle writes the end of a long log, before anybody is told that the build has ended.
func (j *journal) settle() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.leftOut > 0 {
		text := fmt.Sprintf("... [%d lines left out] ...", j.leftOut)
		if b, err := json.Marshal(Entry{Time: j.now(), Text: text, Level: levelWarn}); err == nil {
			_, _ = j.f.Write(append(b, '\n'))
		}
	}
	for _, line := range j.tail {
		_, _ = j.f.Write(line)
	}
	j.tail, j.tailSize, j.leftOut = nil, 0, 0
}

// setStep names the step that what follows is about.
func (j *journal) setStep(step string) {
	j.mu.Lock()
	j.step = step
	j.mu.Unlock()
}

// say adds an entry. A log that can't be written stops nothing.
func (j *journal) say(level Level, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sayLocked(level, text)
}

func (j *journal) sayLocked(level Level, text string) {
	e := Entry{Time: j.now(), Text: term.Escape(strings.ToValidUTF8(text, "?")), Level: level, Step: j.step}
	b, err := json.Marshal(e)
	if err != nil {
		return
	}
	b = append(b, '\n')
	if j.full = j.full || j.size+len(b) > maxLogBytes-maxLogTail; !j.full {
		j.size += len(b)
		_, _ = j.f.Write(b)
		return
	}
	j.tail, j.tailSize = append(j.tail, b), j.tailSize+len(b)
	for j.tailSize > maxLogTail {
		j.tailSize -= len(j.tail[0])
		j.tail = j.tail[1:]
		j.leftOut++
	}
}

// output adds what a command wrote, line by line.
func (j *journal) output(b []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		j.part = append(j.part, line...)
		b = rest
		if whole || len(j.part) >= maxLogLine {
			j.flushLocked()
		}
	}
}

// flush ends a line that has no end.
func (j *journal) flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushLocked()
}

func (j *journal) flushLocked() {
	for len(j.part) > 0 {
		line := j.part[:min(len(j.part), maxLogLine)]
		if text := strings.TrimRight(string(line), "\r "); text != "" {
			j.sayLocked(levelInfo, text)
		}
		j.part = j.part[len(line):]
	}
	j.part = nil
}

// Logs returns entries of a build's log, oldest first unless the query says
// otherwise.
func (s *Service) Logs(ctx context.Context, c sandbox.Caller, ref, build string, q LogQuery) ([]Entry, error) {
	r, err := s.Build(ctx, c, ref, build)
	if err != nil {
		return nil, err
	}
	if q.Level != "" && !slices.Contains(levels, q.Level) {
		return nil, sandbox.Errorf(sandbox.Invalid, "level %.20q: no such level", q.Level).WithHint("debug, info, warn or error")
	}
	all, err := s.logs.read(r.ID)
	if err != nil {
		return nil, err
	}
	return q.of(all), nil
}

func (l logs) read(build string) ([]Entry, error) {
	f, err := os.Open(l.path(build))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Entry
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		var e Entry
		if json.Unmarshal(sc.Bytes(), &e) == nil { // the last line may be torn
			all = append(all, e)
		}
	}
	return all, sc.Err()
}

// of selects from all entries, which are in order.
func (q LogQuery) of(all []Entry) []Entry {
	out := []Entry{}
	if q.Backward {
		slices.Reverse(all)
	}
	skip, limit := q.Offset, min(q.Limit, MaxLogs)
	for _, e := range all {
		switch {
		case slices.Index(levels, e.Level) < slices.Index(levels, q.Level):
			continue
		case !q.After.IsZero() && q.Backward && !e.Time.Before(q.After), !q.After.IsZero() && !q.Backward && e.Time.Before(q.After):
			continue
		case skip > 0:
			skip--
			continue
		case len(out) >= limit:
			return out
		}
		out = append(out, e)
	}
	return out
}

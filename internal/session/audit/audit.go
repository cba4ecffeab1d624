// Package audit writes down each command and process that sessions were asked
// for: who asked, in which session, for what, and how it ended. A line is one
// JSON object; files are turned over by size, and the oldest go.
//
// It never has the value of a variable nor anything that a command wrote, and
// it refuses nothing: a record that can't be written is counted and logged, and
// the command has its answer all the same.
package audit

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/carboy-sandbox/carboy/internal/session"
)

// Name is the newest file's, in the directory of a Log. Older ones have the
// time of their turn in their names.
const Name = "sessions.jsonl"

const (
	fileMiB = 16 // of one file
	files   = 8  // older ones
)

// Log is a directory of records. Close it after use.
type Log struct {
	log *slog.Logger

	mu   sync.Mutex
	file *lumberjack.Logger
	lost int64
}

// Open returns a Log in dir, which is made with the first record, for its owner
// alone.
func Open(dir string, log *slog.Logger) *Log {
	return &Log{log: log, file: &lumberjack.Logger{Filename: filepath.Join(dir, Name), MaxSize: fileMiB, MaxBackups: files}}
}

// Close closes the file. What was written is with the kernel before.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// Lost returns how many records could not be written.
func (l *Log) Lost() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// record is a session.AuditRecord on disk.
type record struct {
	Time       time.Time `json:"time"`
	Owner      string    `json:"owner"`
	Session    string    `json:"session"`
	SessionIs  string    `json:"session_is,omitempty"`
	Sandbox    string    `json:"sandbox,omitempty"`
	Action     string    `json:"action"`
	Process    string    `json:"process,omitempty"`
	Path       string    `json:"path,omitempty"`
	Command    string    `json:"command"`
	EnvKeys    []string  `json:"env_keys,omitempty"`
	Status     string    `json:"status,omitempty"`
	ExitCode   *int      `json:"exit_code,omitempty"`
	Error      string    `json:"error,omitempty"`
	DurationMS int64     `json:"duration_ms"`
	QueuedMS   int64     `json:"queued_ms"`
	Stdout     int64     `json:"stdout_bytes"`
	Stderr     int64     `json:"stderr_bytes"`
	Limits     []string  `json:"limits,omitempty"`
}

// Add writes one record. It is a session.Options.Audit.
func (l *Log) Add(a session.AuditRecord) {
	b, err := json.Marshal(record{
		Time: a.Time.UTC(), Owner: a.Owner, Session: a.Session, SessionIs: a.SessionIs, Sandbox: a.Sandbox,
		Action: a.Action, Process: a.Process, Path: a.Path, Command: a.Command, EnvKeys: a.EnvKeys,
		Status: a.Status, ExitCode: a.ExitCode, Error: a.Error,
		DurationMS: a.Duration.Milliseconds(), QueuedMS: a.Queued.Milliseconds(), Stdout: a.Stdout, Stderr: a.Stderr, Limits: a.Limits,
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.file.Write(append(b, '\n'))
	}
	if err != nil {
		l.lost++
		l.log.Error("write an audit record", "error", err, "lost", l.lost)
	}
}

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/session"
)

const (
	auditName = "sessions.jsonl"
	// maxAudit is the size at which a file of records is set aside, as the one
	// before; the one that was that before is lost.
	maxAudit = 64 << 20
	// auditQueue records may wait to be written.
	auditQueue = 1024
)

// auditLog writes each command of a session to a file, one a line. Commands do
// not wait for the disk, and what it can't write is said in the log.
type auditLog struct {
	path    string
	log     *slog.Logger
	records chan session.AuditRecord
	done    chan struct{}

	mu     sync.RWMutex // against writing to what is closed
	closed bool
}

// auditLine is a record as it is kept.
type auditLine struct {
	Time      string   `json:"time"`
	Owner     string   `json:"owner"`
	Session   string   `json:"session"`
	Sandbox   string   `json:"sandbox,omitempty"`
	Action    string   `json:"action"`
	Process   string   `json:"process,omitempty"`
	Command   string   `json:"command"`
	EnvKeys   []string `json:"env_keys,omitempty"`
	Status    string   `json:"status,omitempty"`
	ExitCode  *int     `json:"exit_code,omitempty"`
	Error     string   `json:"error,omitempty"`
	MS        int64    `json:"duration_ms"`
	QueuedMS  int64    `json:"queued_ms"`
	Stdout    int64    `json:"stdout_bytes"`
	Stderr    int64    `json:"stderr_bytes"`
	Limits    []string `json:"limits,omitempty"`
	SessionIs string   `json:"session_is,omitempty"`
}

func openAudit(dir string, log *slog.Logger) (*auditLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	a := &auditLog{
		path: filepath.Join(dir, auditName), log: log,
		records: make(chan session.AuditRecord, auditQueue), done: make(chan struct{}),
	}
	f, err := a.file(nil)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	go a.run(f)
	return a, nil
}

// write keeps a record, and waits only where very many wait already.
func (a *auditLog) write(r session.AuditRecord) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if !a.closed {
		a.records <- r
	}
}

// close returns when all that was written is in the file.
func (a *auditLog) close() {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.records)
	}
	a.mu.Unlock()
	<-a.done
}

func (a *auditLog) run(f *os.File) {
	defer close(a.done)
	for r := range a.records {
		line, err := json.Marshal(auditLine{
			Time: r.Time.UTC().Format(time.RFC3339Nano), Owner: r.Owner, Session: r.Session, Sandbox: r.Sandbox,
			Action: r.Action, Process: r.Process, Command: r.Command, EnvKeys: r.EnvKeys, Status: r.Status,
			ExitCode: r.ExitCode, Error: r.Error, MS: r.Duration.Milliseconds(), QueuedMS: r.Queued.Milliseconds(),
			Stdout: r.Stdout, Stderr: r.Stderr, Limits: r.Limits, SessionIs: r.SessionIs,
		})
		if err == nil {
			if f, err = a.file(f); err == nil {
				_, err = f.Write(append(line, '\n'))
			}
		}
		if err != nil {
			a.log.Error("a command is not in the audit log", "owner", r.Owner, "session", r.Session, "err", err)
		}
	}
	if f != nil {
		_ = f.Close()
	}
}

// file returns the file to write to: f, unless that is full.
func (a *auditLog) file(f *os.File) (*os.File, error) {
	if f != nil {
		st, err := f.Stat()
		if err != nil || st.Size() < maxAudit {
			return f, err
		}
		if err := errors.Join(f.Close(), os.Rename(a.path, a.path+".1")); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

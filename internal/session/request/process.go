package request

import (
	"strings"
	"unicode"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

const (
	maxProcessID = 256 // bytes

	// MaxProcessBytes is how long a managed process's command, arguments and
	// environment may be together: they are kept for as long as it is remembered.
	MaxProcessBytes = 128 << 10
)

// CheckProcess reports the first thing about a managed process that could
// not be honoured.
func CheckProcess(s sessions.ProcessSpec) error {
	return first([]*sandbox.Error{
		checkProcessID(s.ProcessID),
		checkCommand(s.Command, s.Args),
		checkEnv(s.Env),
		checkSize(s),
		inside("cwd", s.Cwd),
		within("memory_mb", "must be greater than or equal to 0", int64(s.MemoryMB), 0, MaxMemory>>20),
	})
}

func checkProcessID(id string) *sandbox.Error {
	if id == "" || len(id) > maxProcessID || strings.ContainsFunc(id, noText) {
		return fault.Invalid("process_id: 1 to %d bytes of characters that are no control characters are wanted", maxProcessID)
	}
	return nil
}

// noText reports whether r has no place in what something is called by.
func noText(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }

// ProcessBytes is how long what a managed process is started with is.
func ProcessBytes(s sessions.ProcessSpec) int {
	n := len(s.Command) + len(s.Cwd)
	for _, a := range s.Args {
		n += len(a) + 1
	}
	for k, v := range s.Env {
		n += len(k) + len(v) + 2
	}
	return n
}

func checkSize(s sessions.ProcessSpec) *sandbox.Error {
	if n := ProcessBytes(s); n > MaxProcessBytes {
		return fault.Invalid("command, args and env are %d bytes together, at most %d", n, MaxProcessBytes).WithHint("put the large ones into files")
	}
	return nil
}

func checkCommand(command string, args []string) *sandbox.Error {
	if Trim(command) == "" {
		return fault.Invalid("command must not be empty")
	}
	for _, s := range append([]string{command}, args...) {
		if strings.ContainsRune(s, 0) {
			return fault.Invalid("command: it has a NUL")
		}
	}
	return nil
}

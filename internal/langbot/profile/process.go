package profile

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	maxProcessID = 256 // bytes

	// MaxProcessBytes is how long a managed process's command, arguments and
	// environment may be together: they are kept for as long as it is remembered.
	MaxProcessBytes = 128 << 10
)

// ParseProcess reads a managed process from JSON, as ParseSpec does a request.
func ParseProcess(b []byte) (spec sessions.ProcessSpec, ignored []string, err error) {
	m, err := object(b)
	if err != nil {
		return sessions.ProcessSpec{}, nil, err
	}
	spec = sessions.ProcessSpec{
		ProcessID: sessions.DefaultProcess, Args: []string{}, Env: map[string]string{}, Cwd: tools.WorkspacePath,
	}
	if _, given := m["command"]; !given {
		return sessions.ProcessSpec{}, nil, Invalid("command is missing")
	}
	for _, f := range slices.Sorted(maps.Keys(m)) {
		var err error
		switch v := m[f]; f {
		case "process_id":
			spec.ProcessID, err = toText(v)
		case "command":
			err = text(&spec.Command, v)
		case "args":
			spec.Args, err = arguments(v)
		case "env":
			err = environment(&spec.Env, v)
		case "cwd":
			err = text(&spec.Cwd, v)
		case "memory_mb":
			spec.MemoryMB, err = toInt(v)
		default:
			ignored = append(ignored, f)
		}
		if err != nil {
			return sessions.ProcessSpec{}, nil, Invalid("%s: %v", f, err)
		}
	}
	if err := ValidateProcess(spec); err != nil {
		return sessions.ProcessSpec{}, nil, err
	}
	return spec, ignored, nil
}

func arguments(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, wanted("a list", v)
	}
	args := make([]string, 0, len(list))
	for _, v := range list {
		s, err := toScalar(v)
		if err != nil {
			return nil, err
		}
		args = append(args, s)
	}
	return args, nil
}

// ValidateProcess reports the first thing about a managed process that could
// not be honoured.
func ValidateProcess(s sessions.ProcessSpec) error {
	for _, err := range []*sandbox.Error{
		checkProcessID(s.ProcessID),
		checkCommand(s.Command, s.Args),
		checkEnv(s.Env),
		checkSize(s),
		inside("cwd", s.Cwd),
		within("memory_mb", "must be greater than or equal to 0", s.MemoryMB, 0, maxMemoryMB),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkProcessID(id string) *sandbox.Error {
	if id == "" || len(id) > maxProcessID || strings.ContainsFunc(id, noText) {
		return Invalid("process_id: 1 to %d bytes of characters that are no control characters are wanted", maxProcessID)
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
		return Invalid("command, args and env are %d bytes together, at most %d", n, MaxProcessBytes).WithHint("put the large ones into files")
	}
	return nil
}

func checkCommand(command string, args []string) *sandbox.Error {
	if trim(command) == "" {
		return Invalid("command must not be empty")
	}
	for _, s := range append([]string{command}, args...) {
		if strings.ContainsRune(s, 0) {
			return Invalid("command: it has a NUL")
		}
	}
	return nil
}

// CheckCmd wants a Spec to have a command to run.
func CheckCmd(s sessions.Spec) error {
	switch {
	case trim(s.Cmd) == "":
		return Invalid("cmd must not be empty")
	case strings.ContainsRune(s.Cmd, 0):
		return Invalid("cmd: it has a NUL")
	}
	return nil
}

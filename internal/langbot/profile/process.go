package profile

import (
	"maps"
	"slices"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// ParseProcess reads a managed process from JSON, as ParseSpec does a request.
func ParseProcess(b []byte) (p sessions.ProcessSpec, ignored []string, err error) {
	m, err := object(b)
	if err != nil {
		return sessions.ProcessSpec{}, nil, err
	}
	p = sessions.ProcessSpec{
		ProcessID: sessions.DefaultProcess, Args: []string{}, Env: map[string]string{}, Cwd: tools.WorkspacePath,
	}
	if _, given := m["command"]; !given {
		return sessions.ProcessSpec{}, nil, fault.Invalid("command is missing")
	}
	for _, f := range slices.Sorted(maps.Keys(m)) {
		var err error
		switch v := m[f]; f {
		case "process_id":
			p.ProcessID, err = toText(v)
		case "command":
			err = text(&p.Command, v)
		case "args":
			p.Args, err = arguments(v)
		case "env":
			err = environment(&p.Env, v)
		case "cwd":
			err = text(&p.Cwd, v)
		case "memory_mb":
			p.MemoryMB, err = toInt(v)
		default:
			ignored = append(ignored, f)
		}
		if err != nil {
			return sessions.ProcessSpec{}, nil, fault.Invalid("%s: %v", f, err)
		}
	}
	if err := request.CheckProcess(p); err != nil {
		return sessions.ProcessSpec{}, nil, err
	}
	return p, ignored, nil
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

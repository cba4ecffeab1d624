package langbot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

func backendInfo(ctx context.Context, c call) (any, error) {
	b := c.h.o.Sessions.Backend(ctx)
	if !c.h.admit.required() {
		return b, nil
	}
	r := c.h.admit.readiness(ctx)
	// A host that asks for admission looks for the backend that its policy names.
	return map[string]any{"name": c.h.admit.backend(b.Name), "wall": b.Name, "available": r.Ready, "readiness": r}, nil
}

func health(ctx context.Context, c call) (any, error) {
	if !c.h.admit.required() {
		return c.h.o.Sessions.Backend(ctx), nil
	}
	if err := c.h.admit.ready(ctx); err != nil {
		return nil, err
	}
	return c.h.admit.readiness(ctx), nil
}

// initialize takes note of a host's configuration. What is its own to say is
// which directories it calls its own, and that it wants admission; everything
// else is the operator's here, and the answer names what was left out.
func initialize(_ context.Context, c call) (any, error) {
	ignored, err := c.h.Init(c.data)
	if err != nil {
		return nil, err
	}
	return map[string]any{"initialized": true, "ignored": ignored}, nil
}

// Init takes note of a host's configuration, as box_init does, and returns the
// names of what it left out.
func (h *Handler) Init(config json.RawMessage) (ignored []string, err error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(config, &top); err != nil {
		return nil, fault.Invalid("box configuration: it is no object")
	}
	ignored = []string{}
	var roots []string
	for _, name := range slices.Sorted(maps.Keys(top)) {
		switch name {
		case "local":
			var local map[string]json.RawMessage
			if err := json.Unmarshal(top[name], &local); err != nil {
				return nil, fault.Invalid("box configuration: local is no object")
			}
			more, left := localRoots(local)
			roots, ignored = append(roots, more...), append(ignored, left...)
		case "admission":
			if left := h.admit.configure(top[name]); left {
				ignored = append(ignored, name)
			}
		default:
			ignored = append(ignored, name)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.roots = roots
	return ignored, nil
}

// localRoots reads what a host calls its own directories.
func localRoots(local map[string]json.RawMessage) (roots, ignored []string) {
	var root string
	for _, name := range slices.Sorted(maps.Keys(local)) { // default_workspace is before host_root
		var value string
		if err := json.Unmarshal(local[name], &value); err != nil {
			ignored = append(ignored, "local."+name)
			continue
		}
		value = strings.TrimSpace(value)
		switch name {
		case "host_root":
			root = value
		case "default_workspace":
			if path.IsAbs(value) {
				roots = append(roots, value)
			}
		default:
			ignored = append(ignored, "local."+name)
		}
	}
	if root != "" {
		roots = append(roots, root)
	}
	return roots, ignored
}

// declare says which directories of a request are the host's own, under names
// that this machine may not have. A host says its root as its configuration
// does, often relative to where it runs, and its requests have it in full: what
// is before it is taken from them. That opens nothing: a directory of the host's
// own becomes a volume of the workspace's.
func (h *Handler) declare(t tenant, hostPath string) {
	h.mu.Lock()
	roots := slices.Clone(h.roots)
	h.mu.Unlock()
	if hostPath == "" || len(roots) == 0 {
		return
	}
	full := roots[:0]
	for _, root := range roots {
		if path.IsAbs(root) {
			full = append(full, path.Clean(root))
			continue
		}
		if at, ok := upTo(hostPath, root); ok {
			full = append(full, at)
		}
	}
	h.o.Sessions.Declare(t.caller.Owner, full...)
}

// upTo is the part of an absolute path that ends with a relative one's
// elements.
func upTo(full, relative string) (string, bool) {
	relative = path.Clean(relative)
	if relative == "." || strings.HasPrefix(relative, "../") || relative == ".." {
		return "", false
	}
	full = path.Clean(full)
	before, _, found := strings.Cut(full+"/", "/"+relative+"/")
	return before + "/" + relative, found && path.IsAbs(full)
}

// shutdown ends the sessions of the host that asks, and of those of the daemon's
// own user the ones that hosts asked for: others may use the rest. The runtime
// goes on.
func shutdown(ctx context.Context, c call) (any, error) {
	err := c.h.o.Sessions.DropAll(ctx, c.h.o.Owner, c.h.remembered)
	for _, w := range c.h.fence.workspaces(c.instance) {
		err = errors.Join(err, c.h.o.Sessions.DropAll(ctx, ownerOf(c.instance, w), nil))
	}
	return nil, err
}

var probeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\.langbot-box-volume-probe-[a-f0-9]{32}$`) })

const maxProbe = 1024

// verifyShared answers with the digest of a small file that the host put where
// both are to see the same.
func verifyShared(_ context.Context, c call) (any, error) {
	var q struct {
		Name string `json:"marker_name"`
	}
	if err := c.fields(&q); err != nil {
		return nil, err
	}
	name := strings.TrimSpace(q.Name)
	if !probeName().MatchString(name) {
		return nil, readinessError("Invalid Box shared Workspace probe basename")
	}
	if c.h.o.Shared == "" {
		return nil, readinessError("there is no shared workspace: box.default_workspace is not set")
	}
	content, err := readProbe(c.h.o.Shared, name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	return map[string]any{"marker_name": name, "sha256": hex.EncodeToString(sum[:]), "size": len(content)}, nil
}

// readProbe reads a regular file right in dir; neither may be a link.
func readProbe(dir, name string) ([]byte, error) {
	unreadable := readinessError("the shared Workspace probe can't be read")
	at, err := beneath.OpenDir(dir)
	if err != nil {
		return nil, unreadable
	}
	defer at.Close()
	b, err := at.ReadFile(name, maxProbe)
	switch {
	case errors.Is(err, beneath.ErrNotRegular):
		return nil, readinessError("the shared Workspace probe is not a regular file")
	case errors.Is(err, unix.EFBIG), err == nil && len(b) == 0:
		return nil, readinessError("the shared Workspace probe is not of 1 to %d bytes", maxProbe)
	case err != nil:
		return nil, unreadable
	}
	return b, nil
}

func readinessError(format string, args ...any) error {
	e := sandbox.Errorf(sandbox.Unavailable, format, args...)
	e.Err = profile.ErrReadiness
	return e
}

func admissionError(format string, args ...any) error {
	e := sandbox.Errorf(sandbox.Denied, format, args...)
	e.Err = profile.ErrAdmission
	return e
}

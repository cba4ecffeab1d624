package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ociRuntime is a program that runs bundles: runc, or gVisor's own command
// line. The two share theirs.
type ociRuntime struct {
	w       *world
	name    string
	path    string
	argv0   string
	flags   []string // of the program's own, but for the root
	devices bool     // it is told about /dev
	ids     atomic.Int64
}

// state is where the runtime keeps its state.
func (r *ociRuntime) state() string { return filepath.Join(r.w.dir, r.name+"-state") }

func (r *ociRuntime) command(detaches bool, args ...string) command {
	argv := append([]string{r.path, "--root=" + r.state()}, r.flags...)
	return command{argv: append(argv, args...), argv0: r.argv0, detaches: detaches}
}

// id returns a name that no container of this run has, nor is the beginning
// of one: gVisor's command line takes that for the other.
func (r *ociRuntime) id() string { return fmt.Sprintf("%s-%05d", r.w.tag, r.ids.Add(1)) }

// open sees to it that all containers are deleted at the end of the run.
func (r *ociRuntime) open(context.Context) error {
	r.w.later(r.name, func(ctx context.Context) error {
		entries, err := os.ReadDir(r.state())
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		errs := []error{err}
		for _, e := range entries {
			if e.IsDir() {
				errs = append(errs, r.delete(ctx, e.Name()))
			}
		}
		// gVisor's command line pins a network namespace there, for ever.
		_ = unix.Unmount(filepath.Join(r.state(), "null-netns"), 0) // mostly it is not there
		return errors.Join(errs...)
	})
	return nil
}

func (r *ociRuntime) delete(ctx context.Context, id string) error {
	_, err := r.w.run(ctx, r.command(false, "delete", "--force", id))
	r.w.reap()
	return err
}

// bundle writes a description of a container of argv and returns its place.
func (r *ociRuntime) bundle(name, work string, argv []string) (string, error) {
	root, err := r.w.root()
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(ociSpec(root, work, argv, r.devices))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(r.w.dir, r.name+"-"+name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600)
}

// ociSpec describes a container over root, with work at /workspace unless it
// is "".
func ociSpec(root *rootfs, work string, argv []string, devices bool) map[string]any {
	mounts := []map[string]any{
		{"type": "proc", "source": "proc", "destination": "/proc"},
		{"type": "tmpfs", "source": "tmpfs", "destination": "/tmp"},
	}
	if devices {
		mounts = append(mounts, map[string]any{
			"type": "tmpfs", "source": "tmpfs", "destination": "/dev", "options": []string{"nosuid", "mode=755"},
		})
	}
	for _, b := range root.binds {
		mounts = append(mounts, map[string]any{"type": "bind", "source": b, "destination": b, "options": []string{"rbind", "ro"}})
	}
	if work != "" {
		mounts = append(mounts, map[string]any{"type": "bind", "source": work, "destination": "/workspace", "options": []string{"rbind"}})
	}
	return map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]int{"uid": 0, "gid": 0}, "cwd": "/", "args": argv,
			"env": []string{"PATH=/usr/local/bin:/usr/bin:/bin", "W=/workspace", "HOME=/tmp"},
		},
		"root":   map[string]any{"path": root.dir, "readonly": true},
		"mounts": mounts,
		"linux": map[string]any{"namespaces": []map[string]string{
			{"type": "pid"}, {"type": "network"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"},
		}},
	}
}

// sleeper is a command that does nothing for longer than any run takes.
var sleeper = []string{"/bin/sleep", "100000"}

// runDetached starts a container that goes on until it is deleted.
func (r *ociRuntime) runDetached(ctx context.Context, bundle string) (id string, err error) {
	id = r.id()
	_, err = r.w.run(ctx, r.command(true, "run", "--detach", "--bundle", bundle, id))
	return id, err
}

// forGroup starts a container that goes on until the end of the group.
func (r *ociRuntime) forGroup(ctx context.Context, name, work string) (id string, err error) {
	dir, err := r.bundle(name, work, sleeper)
	if err != nil {
		return "", err
	}
	if id, err = r.runDetached(ctx, dir); err == nil {
		r.w.later(r.name, func(ctx context.Context) error { return r.delete(ctx, id) })
	}
	return id, err
}

func (r *ociRuntime) startCase() testCase {
	return testCase{name: r.name, prepare: func(context.Context) (measure, error) {
		dir, err := r.bundle("start", "", word)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (values, error) {
			return r.w.started(r.command(false, "run", "--bundle", dir, r.id()))(ctx)
		}, nil
	}}
}

func (r *ociRuntime) execCase() testCase {
	return testCase{name: r.name, prepare: func(ctx context.Context) (measure, error) {
		id, err := r.forGroup(ctx, "exec", "")
		return r.w.ran(r.command(false, append([]string{"exec", id}, truth...)...)), err
	}}
}

// memoryCase is about containers that sleep, n at a time.
func (r *ociRuntime) memoryCase(n int) testCase {
	return testCase{name: r.name, prepare: func(context.Context) (measure, error) {
		dir, err := r.bundle("idle", "", sleeper)
		if err != nil {
			return nil, err
		}
		return idle{
			n:     n,
			make:  func(ctx context.Context) (string, error) { return r.runDetached(ctx, dir) },
			drop:  r.delete,
			procs: ownProcesses(),
		}.measure, nil
	}}
}

func (r *ociRuntime) place() place {
	return place{name: r.name, open: func(ctx context.Context, work string) (shell, error) {
		id, err := r.forGroup(ctx, filepath.Base(work), work)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, script string, env []string) (string, error) {
			args := append([]string{"exec", id, "/usr/bin/env", "W=/workspace"}, env...)
			o, err := r.w.run(ctx, r.command(false, append(args, "/bin/sh", "-c", script)...))
			return string(o.out), err
		}, nil
	}}
}

// runc is the runtime that Docker uses by default.
func (w *world) runc() peer {
	r := &ociRuntime{w: w, name: "runc", devices: true}
	return peer{
		name: r.name,
		available: func(ctx context.Context) (bool, string) {
			if unix.Geteuid() != 0 {
				return false, "it is measured as root only"
			}
			var err error
			if r.path, err = look("runc"); err != nil {
				return false, err.Error() + ": it is in the package runc"
			}
			return w.version(ctx, r.path, "--version")
		},
		open: r.open, start: []testCase{r.startCase()}, exec: []testCase{r.execCase()},
	}
}

// stock are gVisor's flags for a sandbox like ours.
var stock = []string{
	"--platform=systrap", "--network=none", "--ignore-cgroups", "--directfs=false", "--host-uds=create",
	"--overlay2=none", "--file-access=exclusive", "--in-sandbox-cgroup=v2", "--host-settings=ignore", "--app-huge-pages=false",
}

// runsc is gVisor by its own command line: an installed one, else the one
// that is in carboy itself.
func (w *world) runsc(n int) peer {
	r := &ociRuntime{w: w, name: "runsc", flags: stock}
	return peer{
		name: r.name,
		available: func(ctx context.Context) (bool, string) {
			if unix.Geteuid() != 0 {
				return false, "it is measured as root only"
			}
			var err error
			if r.path, err = look("runsc"); err == nil {
				return w.version(ctx, r.path, "--version")
			}
			if w.gvisor == "" {
				return false, err.Error()
			}
			r.path, r.argv0 = w.gvisor, "carboy-runsc"
			ok, note := w.versionOf(ctx, command{argv: []string{r.path, "--version"}, argv0: r.argv0})
			if ok {
				note = "none is installed: gVisor's own command line, as carboy has it"
			}
			return ok, note
		},
		open: r.open, start: []testCase{r.startCase()}, exec: []testCase{r.execCase()},
		memory: []testCase{r.memoryCase(n)}, places: []place{r.place()},
	}
}

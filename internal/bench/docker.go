package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// docker is a Docker engine, with one of its runtimes.
type docker struct {
	w       *world
	name    string
	path    string
	runtime string
	ids     atomic.Int64
}

const imageName = "carboy-bench"

func (d *docker) image() string { return imageName + ":" + d.w.tag }

func (d *docker) command(args ...string) command {
	return command{argv: append([]string{d.path}, args...)}
}

// available asks the engine whether it has the runtime.
func (d *docker) available(ctx context.Context) (bool, string) {
	var err error
	if d.path, err = look("docker"); err != nil {
		return false, err.Error() + ": it is in the package docker.io"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := d.w.run(ctx, d.command("version", "--format", "{{.Server.Version}}")); err != nil {
		return false, "no engine answers: " + err.Error() + ": start one, such as by dockerd"
	}
	o, err := d.w.run(ctx, d.command("info", "--format", "{{.ServerVersion}} {{json .Runtimes}}"))
	if err != nil {
		return false, "the engine does not say what it has: " + err.Error()
	}
	version, runtimes, _ := strings.Cut(strings.TrimSpace(string(o.out)), " ")
	var known map[string]any
	if err := json.Unmarshal([]byte(runtimes), &known); err != nil || version == "" {
		return false, "the engine does not say what it has: " + firstLine(string(o.out))
	}
	if _, ok := known[d.runtime]; !ok {
		return false, fmt.Sprintf("the engine has no runtime %s: start dockerd with --add-runtime %s=PATH", d.runtime, d.runtime)
	}
	return true, fmt.Sprintf("engine %s, runtime %s", version, d.runtime)
}

// open makes the image, of the same root that others get.
func (d *docker) open(ctx context.Context) error {
	_, err := once(d.w, "docker image", func() (struct{}, error) { return struct{}{}, d.importImage(ctx) })
	return err
}

func (d *docker) importImage(ctx context.Context) error {
	root, err := d.w.root()
	if err != nil {
		return err
	}
	archive, err := root.archive()
	if err != nil {
		return err
	}
	d.w.later("docker", d.clean)
	cmd := exec.CommandContext(ctx, d.path, "import", "-", d.image())
	cmd.Stdin = archive
	var errs tail
	cmd.Stderr = &errs
	if err := d.w.start(cmd); err != nil {
		return err
	}
	if err := d.w.wait(cmd); err != nil {
		return fmt.Errorf("docker import: %w%s", err, &errs)
	}
	return nil
}

// clean removes every container of this run, and the image.
func (d *docker) clean(ctx context.Context) error {
	o, err := d.w.run(ctx, d.command("ps", "--all", "--quiet", "--filter", "label="+d.w.tag))
	errs := []error{err}
	for _, id := range strings.Fields(string(o.out)) {
		errs = append(errs, d.remove(ctx, id))
	}
	if o, err := d.w.run(ctx, d.command("images", "--quiet", d.image())); err != nil || len(o.out) > 0 {
		_, err = d.w.run(ctx, d.command("rmi", "--force", d.image()))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (d *docker) remove(ctx context.Context, id string) error {
	_, err := d.w.run(ctx, d.command("rm", "--force", "--volumes", id))
	return err
}

// runArgs are those of docker run, up to the command.
func (d *docker) runArgs(work string, more ...string) ([]string, error) {
	root, err := d.w.root()
	if err != nil {
		return nil, err
	}
	args := append([]string{"run", "--runtime", d.runtime, "--network", "none", "--label", d.w.tag}, more...)
	for _, b := range root.binds {
		args = append(args, "--volume", b+":"+b+":ro")
	}
	if work != "" {
		args = append(args, "--volume", work+":/workspace")
	}
	return append(args, d.image()), nil
}

// sleep starts a container that goes on until it is removed.
func (d *docker) sleep(ctx context.Context, work string) (id string, err error) {
	args, err := d.runArgs(work, "--detach", "--name", fmt.Sprintf("%s-%s-%d", d.w.tag, d.runtime, d.ids.Add(1)))
	if err != nil {
		return "", err
	}
	o, err := d.w.run(ctx, d.command(append(args, sleeper...)...))
	return strings.TrimSpace(string(o.out)), err
}

// forGroup is sleep until the end of the group.
func (d *docker) forGroup(ctx context.Context, work string) (id string, err error) {
	if id, err = d.sleep(ctx, work); err == nil {
		d.w.later(d.name, func(ctx context.Context) error { return d.remove(ctx, id) })
	}
	return id, err
}

// procs returns the processes of containers: their shims, and all below.
func (d *docker) procs(ctx context.Context, ids []string) (pids []int, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	o, err := d.w.run(ctx, d.command(append([]string{"inspect", "--format", "{{.State.Pid}}"}, ids...)...))
	if err != nil {
		return nil, err
	}
	all, err := readProcesses()
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, p := range all {
		parents[p.pid] = p.parent
	}
	for _, word := range strings.Fields(string(o.out)) {
		pid, err := strconv.Atoi(word)
		if err != nil || parents[pid] <= 1 {
			return nil, fmt.Errorf("a container's process %.20q has no shim", word)
		}
		pids = append(pids, pidsOf(below(all, parents[pid]))...)
	}
	return pids, nil
}

// peer returns all that is measured of d.
func (d *docker) peer(n int) peer {
	return peer{
		name: d.name, available: d.available, open: d.open,
		start: []testCase{{name: d.name, prepare: func(context.Context) (measure, error) {
			args, err := d.runArgs("", "--rm")
			return d.w.started(d.command(append(args, word...)...)), err
		}}},
		exec: []testCase{{name: d.name, prepare: func(ctx context.Context) (measure, error) {
			id, err := d.forGroup(ctx, "")
			return d.w.ran(d.command(append([]string{"exec", id}, truth...)...)), err
		}}},
		memory: []testCase{{name: d.name, prepare: ready(idle{
			n:    n,
			make: func(ctx context.Context) (string, error) { return d.sleep(ctx, "") },
			drop: d.remove, procs: d.procs,
		}.measure)}},
		places: []place{{name: d.name, open: func(ctx context.Context, work string) (shell, error) {
			id, err := d.forGroup(ctx, work)
			return func(ctx context.Context, script string, env []string) (string, error) {
				args := []string{"exec", "--env", "W=/workspace"}
				for _, kv := range env {
					args = append(args, "--env", kv)
				}
				o, err := d.w.run(ctx, d.command(append(args, id, "/bin/sh", "-c", script)...))
				return string(o.out), err
			}, err
		}}},
	}
}

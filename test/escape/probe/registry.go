package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// limit is how long one probe may take. Behind gVisor, on a busy machine, a
// walk over what is mounted takes seconds.
const limit = 20 * time.Second

// probe is one kind of attempt.
type probe struct {
	name string
	// native probes ask the host's kernel by system call, and say nothing of
	// a wall that has a kernel of its own.
	native bool
	run    func(*trial)
}

// trial is one run of a probe.
type trial struct {
	facts.Facts
	finds, notes []string
}

// find records that something was found that must not be.
func (t *trial) find(format string, args ...any) {
	t.finds = append(t.finds, fmt.Sprintf(format, args...))
}

// note records what was seen instead.
func (t *trial) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// probes lists all, in the order in which they run.
func probes() []probe {
	return slices.Concat(processProbes, identityProbes, descriptorProbes, fileProbes, mountProbes,
		deviceProbes, namespaceProbes, socketProbes, ipcProbes, kernelProbes, callProbes, countProbes, traceProbes, shareProbes)
}

func find(name string) (probe, error) {
	for _, p := range probes() {
		if p.name == name {
			return p, nil
		}
	}
	return probe{}, fmt.Errorf("no probe %q", name)
}

// runAll runs each probe in a process of its own. Without names it runs all.
func runAll(file string, names []string, out io.Writer) error {
	f, err := load(file)
	if err != nil {
		return err
	}
	todo := probes()
	if len(names) > 0 {
		todo = nil
		for _, n := range names {
			p, err := find(n)
			if err != nil {
				return err
			}
			todo = append(todo, p)
		}
	}
	enc := json.NewEncoder(out)
	for _, p := range todo {
		r := facts.Result{Probe: p.name, Detail: "asks the host's kernel, which this wall keeps away"}
		if !p.native || f.Native() {
			r = apart(file, p.name)
		}
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// apart runs a probe in a child, which may hang or be killed.
func apart(file, name string) facts.Result {
	self, err := os.Executable()
	if err != nil {
		return facts.Result{Probe: name, Error: err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "one", file, name)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var r facts.Result
	switch {
	case ctx.Err() != nil:
		return facts.Result{Probe: name, Error: fmt.Sprintf("still running after %v", limit)}
	case killedByFilter(err):
		return facts.Result{Probe: name, Detail: "killed by a filter of system calls"}
	case err != nil:
		text := strings.TrimSpace(errs.String())
		return facts.Result{Probe: name, Error: fmt.Sprintf("%v: %.600s", err, text)}
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return facts.Result{Probe: name, Error: fmt.Sprintf("%v: %.200q", err, out.String())}
	}
	return r
}

func killedByFilter(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGSYS
}

// runOne runs a probe here. A panic is a crash, and the parent says so.
func runOne(file, name string, out io.Writer) error {
	f, err := load(file)
	if err != nil {
		return err
	}
	p, err := find(name)
	if err != nil {
		return err
	}
	t := &trial{Facts: f}
	p.run(t)
	r := facts.Result{Probe: name, Found: len(t.finds) > 0, Detail: strings.Join(t.notes, "; ")}
	if r.Found {
		r.Detail = strings.Join(t.finds, "; ")
	}
	r.Detail = clip(r.Detail)
	return json.NewEncoder(out).Encode(r)
}

// clip keeps one result short: a wall that leaks, leaks much.
func clip(s string) string {
	const most = 800
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + " ..."
	}
	return s
}

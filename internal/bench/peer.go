package bench

import (
	"context"
	"errors"
	"strings"
	"time"
)

// peer is something that sandboxes are made by, or nothing at all.
type peer struct {
	name string
	// available says whether it is here: its version and where it is, or what
	// is missing and how to get it.
	available func(ctx context.Context) (ok bool, note string)
	// open makes what all its cases need; nil for nothing.
	open func(ctx context.Context) error

	start, exec, memory []testCase
	places              []place
}

// Metrics of the groups.
const (
	firstOutput = "first output"
	done        = "done"
	whole       = "whole"
)

// word is the command of which the first output is waited for.
var word = []string{"/bin/echo", "hello"}

// truth is the command of which the end is waited for.
var truth = []string{"/bin/true"}

// ready is a prepare for a case that needs nothing.
func ready(f measure) func(context.Context) (measure, error) {
	return func(context.Context) (measure, error) { return f, nil }
}

// started measures a command that makes a sandbox and prints a word in it.
func (w *world) started(c command) measure {
	return func(ctx context.Context) (values, error) {
		o, err := w.run(ctx, c)
		if err == nil && o.first == 0 {
			err = errors.New(c.argv[0] + " printed nothing")
		}
		return values{firstOutput: ms(o.first), done: ms(o.whole)}, err
	}
}

// ran measures a command that runs another one in a sandbox that is there.
func (w *world) ran(c command) measure {
	return func(ctx context.Context) (values, error) {
		o, err := w.run(ctx, c)
		return values{whole: ms(o.whole)}, err
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// native is a process without any wall.
func (w *world) native() peer {
	return peer{
		name:      "native",
		available: func(context.Context) (bool, string) { return true, "processes without any wall" },
		start:     []testCase{{name: "native", prepare: ready(w.started(command{argv: word}))}},
		exec:      []testCase{{name: "native", prepare: ready(w.ran(command{argv: truth}))}},
		places: []place{{name: "native", open: func(_ context.Context, dir string) (shell, error) {
			return func(ctx context.Context, script string, env []string) (string, error) {
				o, err := w.run(ctx, command{argv: []string{"/bin/sh", "-c", script}, env: append(env, "W="+dir)})
				return string(o.out), err
			}, nil
		}}},
	}
}

// bwrap is bubblewrap: namespaces, and a root made of binds.
func (w *world) bwrap() peer {
	var path string
	enter := func(work string, argv ...string) ([]string, error) {
		root, err := w.root()
		if err != nil {
			return nil, err
		}
		args := []string{path, "--unshare-all", "--die-with-parent", "--ro-bind", root.dir, "/"}
		for _, b := range root.binds {
			args = append(args, "--ro-bind", b, b)
		}
		args = append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
		if work != "" {
			args = append(args, "--bind", work, "/workspace")
		}
		return append(append(args, "--"), argv...), nil
	}
	return peer{
		name: "bwrap",
		available: func(ctx context.Context) (bool, string) {
			var err error
			if path, err = look("bwrap"); err != nil {
				return false, err.Error() + ": it is in the package bubblewrap"
			}
			return w.version(ctx, path, "--version")
		},
		start: []testCase{{name: "bwrap", prepare: func(context.Context) (measure, error) {
			argv, err := enter("", word...)
			return w.started(command{argv: argv}), err
		}}},
		places: []place{{name: "bwrap", open: func(_ context.Context, dir string) (shell, error) {
			return func(ctx context.Context, script string, env []string) (string, error) {
				argv, err := enter(dir, "/bin/sh", "-c", script)
				if err != nil {
					return "", err
				}
				o, err := w.run(ctx, command{argv: argv, env: append(env, "W=/workspace")})
				return string(o.out), err
			}, nil
		}}},
	}
}

// version asks a program for its version, and so finds out whether it works.
func (w *world) version(ctx context.Context, path string, args ...string) (bool, string) {
	return w.versionOf(ctx, command{argv: append([]string{path}, args...)})
}

func (w *world) versionOf(ctx context.Context, c command) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	o, err := w.run(ctx, c)
	if err != nil {
		return false, c.argv[0] + " does not work: " + err.Error()
	}
	return true, c.argv[0] + ": " + firstLine(string(o.out))
}

// firstLine is the first line of text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

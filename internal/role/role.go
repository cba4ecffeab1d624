// Package role is how this binary executes itself again to be another process of
// ours: how that is named, what runs in it, how it is started, and how it answers.
//
// A role is chosen by argv[0] alone, compared as a whole: no argument of a
// user's command can select one. It begins with an empty environment, but for a
// path, and a session of its own. What a role is told it reads from its standard
// input, never from arguments, which all users can see.
package role

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Table is what a package's roles run, by their names. The process ends when
// that returns: see Exit.
type Table map[string]func() error

// own are the roles of this package.
var own = Table{roleUserNS: func() error { return nil }, roleRemove: func() error { return removeMain(os.Stdin) }, roleMeasure: func() error { return measureMain(os.Stdin, os.Stdout) }}

// Become runs the role that argv[0] names, and ends the process. Where it names
// none, it returns.
func Become(tables ...Table) {
	for _, t := range append(tables, own) {
		if run := t[os.Args[0]]; run != nil {
			// ps and top show this: it is "exe" or a number, by what was executed.
			_ = os.WriteFile("/proc/self/comm", []byte(os.Args[0]), 0)
			Exit(run())
		}
	}
}

// Code is an error that says no word: the process ends with that code.
type Code int

// Error implements error.
func (c Code) Error() string { return "exit code " + strconv.Itoa(int(c)) }

// stderr is where a role reports: a launcher gives os.Stderr away.
var stderr = os.Stderr

// Exit ends the process: with its error on standard error, if it has one. One that a
// user may read arrives at the process that ran the role as what it is.
func Exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	if code, ok := errors.AsType[Code](err); ok {
		os.Exit(int(code))
	}
	fmt.Fprintln(stderr, said(err))
	os.Exit(1)
}

// MaxWords bounds what is kept of what a role says when it fails, in bytes.
const MaxWords = 4096

const readyLine = "ready\n"

// Ready says on out that this role serves.
func Ready(out io.Writer) error {
	_, err := io.WriteString(out, readyLine)
	return err
}

// ErrNotReady is the error of AwaitReady for a role that said nothing.
var ErrNotReady = errors.New("ended before it served")

// AwaitReady reads what a role says first. Anything but that it serves is why it
// does not, and is the error.
func AwaitReady(out io.Reader) error {
	r := bufio.NewReader(io.LimitReader(out, MaxWords))
	line, err := r.ReadString('\n')
	if line == readyLine {
		return nil
	}
	if err == nil {
		var rest []byte
		rest, err = io.ReadAll(r)
		line += string(rest)
	}
	if words := strings.TrimSpace(line); words != "" {
		return errors.New(words)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(ErrNotReady, err)
}

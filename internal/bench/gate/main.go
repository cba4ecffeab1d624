package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names by which this program runs itself again.
const (
	roleWorld = "carboy-gate-bench-world"
	roleLoad  = "load"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == roleLoad:
		err = load(os.Args[2:], os.Stdout)
	case os.Args[0] == roleWorld:
		err = measure(os.Args[1:])
	default:
		err = isolate()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok { // which has said why
			os.Exit(max(exit.ExitCode(), 1))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate bench:", err)
		os.Exit(1)
	}
}

// isolate runs this program again in namespaces of its own.
func isolate() error {
	if os.Getuid() != 0 {
		return errors.New("needs root, for a network namespace")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // they are the child's
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = roleWorld
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	return cmd.Run()
}

// options are what a run is asked for.
type options struct {
	carboy    string
	squid     string // what unpacked packages lie below; "": not measured
	mitmproxy string
	rounds    int
	streams   int // rounds of events
	requests  int // in a round
	megabytes int
	events    int
	creates   int
	only      string
	places    string
	json      bool
}

func parseOptions(args []string) (o options, err error) {
	fs := flag.NewFlagSet("gate", flag.ContinueOnError)
	fs.StringVar(&o.carboy, "carboy", "bin/carboy", "the `program` to measure")
	fs.StringVar(&o.squid, "squid", "", "the `directory` below which squid is unpacked")
	fs.StringVar(&o.mitmproxy, "mitmproxy", "", "the `directory` below which mitmproxy is unpacked")
	fs.IntVar(&o.rounds, "rounds", 10, "how often each transfer is measured")
	fs.IntVar(&o.streams, "streams", 5, "how often each stream of events is")
	fs.IntVar(&o.requests, "requests", 1000, "requests in a round")
	fs.IntVar(&o.megabytes, "megabytes", 1024, "bytes of a transfer, in `MiB`")
	fs.IntVar(&o.events, "events", 1000, "events of a stream")
	fs.IntVar(&o.creates, "creates", 30, "sandboxes to create of each kind")
	fs.StringVar(&o.only, "only", "", "`groups` to measure, with commas between: requests, down, up, events, memory, create")
	fs.StringVar(&o.places, "places", "", "`places` of the client, with commas between, where not all")
	fs.BoolVar(&o.json, "json", false, "write JSON, with every sample but requests'")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.carboy, err = filepath.Abs(o.carboy); err != nil {
		return o, err
	}
	if o.rounds < 1 || o.streams < 1 || o.requests < 1 || o.megabytes < 1 || o.events < 2 || o.creates < 1 {
		return o, errors.New("amounts must be more than nothing, and events two")
	}
	_, err = os.Stat(o.carboy)
	return o, err
}

// measure does what is asked for, and takes away what it made.
func measure(args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	w, err := newWorld()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	rep, err := w.runAll(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(rep)
	}
	return rep.WriteTable(os.Stdout)
}

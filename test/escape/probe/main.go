// Program probe tries to get out of the sandbox that it is started in, and
// says what it found, one JSON object a line. It is part of the escape suite,
// which plants on the host what must not be found: see package escape.
//
// It changes nothing that it finds: where an attempt would do harm if it went
// through, the attempt is made in a way that can't finish. It needs nothing of
// the sandbox but /proc, and runs each probe in a process of its own, so that
// a filter that kills takes that one alone.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

const usage = `usage:
  probe list              the probes' names
  probe run FACTS [NAME]  run all probes, or those named
  probe one FACTS NAME    run one, in this process
  probe leave FACTS       leave hostile things where the host will look
  probe hold              say "ready" and stay until stdin ends
  probe compose           run sequences of steps, as a plan on stdin says
  probe composed          run some of them in this process
  probe may               say what may be mounted
  probe attack FILE SOCK  plant links to both where the host looks, and a flood
  probe forge NAME        have a socket of that name, as an agent without a key
  probe pass FILE PLACE   have a socket at each place, and give FILE and more to who dials it
  probe take PLACE        dial each place, and keep what is given there
  probe euid              print the effective user id
`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	var err error
	switch mode, rest := args[0], args[1:]; {
	case mode == "list":
		for _, p := range probes() {
			fmt.Fprintln(stdout, p.name)
		}
	case mode == "run" && len(rest) > 0:
		err = runAll(rest[0], rest[1:], stdout)
	case mode == "one" && len(rest) == 2:
		err = runOne(rest[0], rest[1], stdout)
	case mode == "uncover" && len(rest) == 0:
		uncoverAsRoot(stdout)
	case mode == "may":
		err = mayMount(stdout)
	case mode == "mounts-here":
		err = json.NewEncoder(stdout).Encode(tryMounts())
	case mode == "attack" && len(rest) == 2:
		err = attack(rest[0], rest[1], stdout)
	case mode == "attacked" && len(rest) == 2:
		err = attacked(rest[0], rest[1], stdout)
	case mode == "forge" && len(rest) == 1:
		err = forge(rest[0], stdin, stdout)
	case mode == "pass" && len(rest) > 0:
		err = pass(rest[0], rest[1:], stdin, stdout)
	case mode == "take":
		err = collect(rest, stdin, stdout)
	case mode == "leave" && len(rest) == 1:
		err = leave(rest[0], stdout)
	case mode == "hold":
		fmt.Fprintln(stdout, "ready", os.Getpid())
		_, err = io.Copy(io.Discard, stdin)
	case mode == "compose":
		err = compose(stdin, stdout)
	case mode == "composed":
		err = composed(stdin, stdout)
	case mode == "euid":
		fmt.Fprintln(stdout, strconv.Itoa(os.Geteuid()))
	default:
		fmt.Fprint(stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "probe:", err)
		return 1
	}
	return 0
}

func load(file string) (facts.Facts, error) {
	var f facts.Facts
	b, err := os.ReadFile(file)
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(b, &f)
}

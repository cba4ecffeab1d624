// Report judges what go test -json wrote, after gotestsum has run it and has run again,
// alone, each test that failed. It reads the files named as arguments, one a stage, prints
// what became of the run, and exits with 1 where the run is red.
//
// A test that failed and then passed is flaky: it is named, kept in flaky.json with what it
// said first, and the run is green. There is no second chance for a data race, a build that
// fails, a panic or a time-out, an attack that succeeds, a failure outside of any test, or a
// skip that is not on the list of lawful ones: where the machine offers what tests need, a
// test that finds something missing has found a fault.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	out := flag.String("out", "", "directory for test.json and flaky.json; without it they are not written")
	began := flag.Int64("began", 0, "when the run began, in seconds since 1970")
	flag.Parse()
	r := newRun()
	for _, name := range flag.Args() {
		if err := readFile(r, name); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
	}
	v := judge(r, machine{}, quarantine)
	v.print(os.Stdout)
	if *out != "" {
		if err := v.record(*out, *began); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
	}
	if !v.green() {
		os.Exit(1)
	}
}

func readFile(r *run, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.read(f)
}

// print says what a person has to know, the worst last.
func (v *verdict) print(out io.Writer) {
	list := func(head string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(out, "\n%s:\n", head)
		for _, l := range lines {
			fmt.Fprintf(out, "  %s\n", l)
		}
	}
	list("skipped, lawfully", v.reasons)
	list("the slowest tests", v.slowTests)
	list("packages over two minutes", v.slowPackages)
	list("tried something twice", v.again)
	list("in quarantine, and failed", v.quarantined)
	list("flaky: failed, and passed alone", v.flakyNames())
	list("RED", v.red)
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", v.passed, v.failed, v.skipped)
}

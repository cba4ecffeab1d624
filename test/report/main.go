// Report reads what go test -json says on its standard input, prints what go
// test prints without it, and ends with the tests that were skipped and those
// that tried something twice. A skip that is not on the list of lawful ones is a
// failure: where the machine offers what tests need, a test that finds something
// missing has found a fault. With -v, all that tests say is printed.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "print all that tests say")
	flag.Parse()
	if !run(os.Stdin, os.Stdout, machine{}, *verbose) {
		os.Exit(1)
	}
}

// triedAgain begins what a test logs that succeeded at the second attempt.
const triedAgain = "tried again: "

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// pkg is what a package's tests have said, and how each ended.
type pkg struct {
	said  []event
	ended map[string]string
}

// skip is a test that was not run, and what it said.
type skip struct {
	pkg, test, said string
}

type report struct {
	out     io.Writer
	verbose bool
	failed  bool
	ran     int
	again   []string        // tests that say they tried something twice
	passed  map[string]bool // packages with a test's name
	open    map[string]*pkg
	skips   []skip
}

// run reads events until their end, and tells whether all is well.
func run(in io.Reader, out io.Writer, m offers, verbose bool) bool {
	r := &report{out: out, verbose: verbose, open: map[string]*pkg{}, passed: map[string]bool{}}
	b := bufio.NewReader(in)
	for {
		line, err := b.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil || e.Action == "":
			fmt.Fprintf(out, "%s", line) // go test speaks for itself
		default:
			r.take(e)
		}
		if err != nil {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.open)) {
		fmt.Fprintf(out, "FAIL\t%s: its end is missing\n", name)
		r.print(r.open[name], true)
		r.failed = true
	}
	// A run of nothing is one whose list of packages could not be made.
	return r.count(m) && !r.failed && r.ran+len(r.skips) > 0
}

func (r *report) take(e event) {
	switch {
	case strings.HasPrefix(e.Action, "build-"):
		fmt.Fprint(r.out, e.Output)
		r.failed = r.failed || e.Action == "build-fail"
		return
	case e.Package == "":
		r.failed = r.failed || e.Action == "fail"
		return
	}
	p := r.open[e.Package]
	if p == nil {
		p = &pkg{ended: map[string]string{}}
		r.open[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.said = append(p.said, e)
		if strings.Contains(e.Output, triedAgain) {
			r.again = append(r.again, e.Package+" "+e.Test)
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			delete(r.open, e.Package)
			r.failed = r.failed || e.Action == "fail"
			r.print(p, e.Action == "fail")
			return
		}
		p.ended[e.Test] = e.Action
		if e.Action == "skip" {
			r.skips = append(r.skips, skip{e.Package, e.Test, p.saidBy(e.Test)})
		} else {
			r.ran++
			r.passed[e.Package+" "+e.Test] = r.passed[e.Package+" "+e.Test] || e.Action == "pass"
		}
	}
}

// saidBy joins what one test said: its frame is go test's.
func (p *pkg) saidBy(test string) string {
	var b strings.Builder
	for _, e := range p.said {
		if e.Test == test && !framed(e.Output) && !strings.HasPrefix(strings.TrimSpace(e.Output), "--- ") {
			b.WriteString(e.Output)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func framed(line string) bool { return strings.HasPrefix(line, "=== ") }

// print says of a package that passed that it did, and of one that failed all
// that was said by tests that failed or never ended.
func (r *report) print(p *pkg, failed bool) {
	for i, e := range p.said {
		ended := p.ended[e.Test]
		switch {
		case r.verbose,
			e.Test == "" && (failed || i == len(p.said)-1),
			e.Test != "" && failed && ended != "pass" && ended != "skip" && !framed(e.Output):
			fmt.Fprint(r.out, e.Output)
		}
	}
}

// count prints the skips by their reasons, and each that has none.
func (r *report) count(m offers) bool {
	reasons := map[string]int{}
	var wrong []string
	for _, s := range r.skips {
		if l, ok := excuse(s, m); ok && (!l.again || r.passed[s.pkg+" "+s.test]) {
			reasons[l.why]++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s %s: %s", s.pkg, s.test, s.said))
	}
	for _, name := range r.again {
		fmt.Fprintf(r.out, "tried again: %s\n", name)
	}
	fmt.Fprintf(r.out, "%d tests ran, %d skipped, %d tried again\n", r.ran, len(r.skips), len(r.again))
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(r.out, "%5d  %s\n", reasons[why], why)
	}
	if len(wrong) > 0 {
		fmt.Fprintf(r.out, "FAIL: %d skipped for no lawful reason (test/report/lawful.go):\n  %s\n", len(wrong), strings.Join(wrong, "\n  "))
	}
	return len(wrong) == 0
}

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// event is a line of go test -json. One without a package that says "fail" is from
// scripts/test.sh: the stage ended with an error.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// run is all that was read.
type run struct {
	pkgs   map[string]*pkg
	order  []string // packages as they came
	builds []string // what builds that failed have said
	stages []stage
	now    stage
}

// stage is a call of gotestsum.
type stage struct{ failed, explained bool }

// pkg is one package, through all its runs.
type pkg struct {
	name    string
	tests   map[string]*test
	order   []string
	open    bool     // begun, and not ended
	said    []string // outside of tests, by the run that is open
	marks   []string // what no second try makes good
	lost    []string // said by runs that failed without a test that did
	failing bool     // a test failed in the run that is open
	seconds float64
}

// test is one test or subtest, through all its runs.
type test struct {
	name    string
	ends    []string // pass, fail or skip, for each run
	said    []string // by the run that is open
	first   string   // said by the first run that failed
	skip    string   // said by the last that was skipped
	again   bool     // it says that it tried something twice
	seconds float64
}

func newRun() *run { return &run{pkgs: map[string]*pkg{}} }

// read takes one stage's events. Lines that are none are go test's own words, which
// gotestsum has printed.
func (r *run) read(in io.Reader) error {
	r.now = stage{}
	b := bufio.NewReader(in)
	for {
		line, err := b.ReadBytes('\n')
		var e event
		if json.Unmarshal(bytes.TrimSpace(line), &e) == nil && e.Action != "" {
			r.take(e)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	r.stages = append(r.stages, r.now)
	return nil
}

func (r *run) take(e event) {
	switch {
	case e.Action == "build-output":
		r.builds = append(r.builds, strings.TrimRight(e.Output, "\n"))
		return
	case e.Action == "build-fail":
		r.now.explained = true
		r.builds = append(r.builds, "the build fails")
		return
	case e.Package == "":
		r.now.failed = r.now.failed || e.Action == "fail"
		return
	}
	p := r.pkgs[e.Package]
	if p == nil {
		p = &pkg{name: e.Package, tests: map[string]*test{}}
		r.pkgs[e.Package] = p
		r.order = append(r.order, e.Package)
	}
	if e.Action == "fail" {
		r.now.explained = true
	}
	if e.Test == "" {
		p.take(e)
		return
	}
	p.open = true
	t := p.tests[e.Test]
	if t == nil {
		t = &test{name: e.Test}
		p.tests[e.Test] = t
		p.order = append(p.order, e.Test)
	}
	t.take(e)
	p.failing = p.failing || e.Action == "fail"
	p.mark(e)
}

// triedAgain begins what a test logs that succeeded at the second attempt.
const triedAgain = "tried again: "

func (t *test) take(e event) {
	switch e.Action {
	case "run":
		t.said = nil
	case "output":
		if !framed(e.Output) {
			t.said = append(t.said, e.Output)
		}
		t.again = t.again || strings.Contains(e.Output, triedAgain)
	case "pass", "fail", "skip":
		t.ends = append(t.ends, e.Action)
		t.seconds = max(t.seconds, e.Elapsed)
		said := strings.Join(t.said, "")
		if e.Action == "fail" && t.first == "" {
			t.first = said
		}
		if e.Action == "skip" {
			t.skip = strings.Join(strings.Fields(said), " ")
		}
		t.said = nil
	}
}

// take is of the package itself.
func (p *pkg) take(e event) {
	switch e.Action {
	case "start":
		p.open, p.failing, p.said = true, false, nil
	case "output":
		p.open = true
		p.said = append(p.said, e.Output)
		p.mark(e)
	case "pass", "skip":
		p.open = false
		p.seconds = max(p.seconds, e.Elapsed)
	case "fail":
		p.open = false
		p.seconds = max(p.seconds, e.Elapsed)
		if !p.failing {
			p.lost = append(p.lost, strings.TrimSpace(strings.Join(p.said, "")))
		}
	}
}

// mark keeps what no second try makes good.
func (p *pkg) mark(e event) {
	line := strings.TrimSpace(e.Output)
	switch {
	case strings.HasPrefix(e.Output, "panic: "), strings.HasPrefix(e.Output, "fatal error: "),
		strings.HasPrefix(line, "WARNING: DATA RACE"), strings.Contains(e.Output, finding):
		p.marks = append(p.marks, strings.TrimSpace(e.Test+": "+line))
	}
}

// finding begins what a test says of an attack that succeeded.
const finding = "finding: "

// framed tells go test's own lines about a test.
func framed(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
}

// last is how the test's last run ended; empty where none did.
func (t *test) last() string {
	if len(t.ends) == 0 {
		return ""
	}
	return t.ends[len(t.ends)-1]
}

func (t *test) failedOnce() bool { return slices.Contains(t.ends, "fail") }

func (t *test) failedLast() bool { return t.last() == "fail" }

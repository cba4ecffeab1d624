package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// verdict is what became of a run.
type verdict struct {
	passed, failed, skipped int
	red                     []string
	flaky                   []flaky
	quarantined             []string
	reasons, again          []string
	slowTests, slowPackages []string
}

// flaky is a test that failed, and passed when it was run again, alone.
type flaky struct {
	Package string `json:"package"`
	Test    string `json:"test"`
	Said    string `json:"said"` // the first time
}

func (v *verdict) green() bool { return len(v.red) == 0 }

func (v *verdict) flakyNames() (names []string) {
	for _, f := range v.flaky {
		names = append(names, f.Package+" "+f.Test)
	}
	return names
}

// judge weighs a run on machine m. Tests in the quarantine q count for nothing.
func judge(r *run, m offers, q []held) *verdict {
	v := &verdict{red: slices.Clone(r.builds)}
	for _, name := range r.order {
		v.pkg(r.pkgs[name], q)
	}
	for i, s := range r.stages {
		if s.failed && !s.explained {
			v.red = append(v.red, fmt.Sprintf("stage %d ended with an error, and no test of it failed", i+1))
		}
	}
	v.skips(r, m)
	v.slowest(r)
	// A run of nothing is one whose list of packages could not be made.
	if v.passed+v.failed+v.skipped == 0 {
		v.red = append(v.red, "no test ran")
	}
	return v
}

func (v *verdict) pkg(p *pkg, q []held) {
	name := strings.TrimPrefix(p.name, module)
	failing := false
	for _, t := range p.order {
		failing = v.test(name, p, p.tests[t], q) || failing
	}
	if p.open {
		v.red = append(v.red, name+": its end is missing")
	}
	for _, said := range p.lost {
		v.red = append(v.red, name+": failed outside of its tests: "+short(said))
	}
	if failing || len(p.lost) > 0 {
		for _, mark := range p.marks {
			v.red = append(v.red, name+" "+mark+" (no second try counts)")
		}
	}
}

// test counts one, and reports whether it failed at any time.
func (v *verdict) test(pkg string, p *pkg, t *test, q []held) bool {
	if t.again {
		v.again = append(v.again, pkg+" "+t.name)
	}
	name := pkg + " " + t.name
	switch last := t.last(); {
	case last == "skip" && t.failedOnce():
		v.failed++
		v.red = append(v.red, name+": it failed, and was then skipped")
	case last == "skip":
		v.skipped++
	case last == "pass":
		v.passed++
		if t.failedOnce() && !p.below(t, (*test).failedOnce) {
			v.flaky = append(v.flaky, flaky{pkg, t.name, t.first})
		}
	case last == "fail" && p.below(t, (*test).failedLast):
		// Its subtests say which of them failed.
	case last == "fail" && inQuarantine(q, pkg, t.name):
		v.quarantined = append(v.quarantined, name)
	case last == "fail":
		v.failed++
		v.red = append(v.red, name)
	default:
		v.failed++
		v.red = append(v.red, name+": it did not end")
	}
	return t.failedOnce()
}

// below reports whether something holds of a subtest of t.
func (p *pkg) below(t *test, holds func(*test) bool) bool {
	for name, other := range p.tests {
		if strings.HasPrefix(name, t.name+"/") && holds(other) {
			return true
		}
	}
	return false
}

// skips counts them by their reasons. One without a reason is red.
func (v *verdict) skips(r *run, m offers) {
	count := map[string]int{}
	for _, p := range r.order {
		for _, name := range r.pkgs[p].order {
			t := r.pkgs[p].tests[name]
			if !slices.Contains(t.ends, "skip") {
				continue
			}
			l, ok := excuse(skip{p, t.name, t.skip}, m)
			if !ok || l.again && !slices.Contains(t.ends, "pass") {
				v.red = append(v.red, fmt.Sprintf("%s %s: skipped for no lawful reason (test/report/lawful.go): %s", strings.TrimPrefix(p, module), t.name, t.skip))
				continue
			}
			count[l.why]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(count)) {
		v.reasons = append(v.reasons, fmt.Sprintf("%5d  %s", count[why], why))
	}
}

// slowest names what took the time: twenty tests, and the packages over two minutes.
func (v *verdict) slowest(r *run) {
	type took struct {
		name    string
		seconds float64
	}
	var tests, pkgs []took
	for _, p := range r.pkgs {
		pkgs = append(pkgs, took{strings.TrimPrefix(p.name, module), p.seconds})
		for _, t := range p.tests {
			if !strings.Contains(t.name, "/") {
				tests = append(tests, took{strings.TrimPrefix(p.name, module) + " " + t.name, t.seconds})
			}
		}
	}
	line := func(t took) string { return fmt.Sprintf("%6.0f s  %s", t.seconds, t.name) }
	longest := func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) }
	slices.SortFunc(tests, longest)
	slices.SortFunc(pkgs, longest)
	for _, t := range tests[:min(20, len(tests))] {
		v.slowTests = append(v.slowTests, line(t))
	}
	for _, p := range pkgs {
		if p.seconds > 120 {
			v.slowPackages = append(v.slowPackages, line(p))
		}
	}
}

// short keeps one line of the report readable: gotestsum has printed all.
func short(s string) string {
	const most = 300
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + " ..."
	}
	return s
}

package policy

import (
	"fmt"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// size is what an expression counts.
func (e expression) size() int {
	if e.toRead() > maxExpressions {
		return e.toRead() // which it is not
	}
	re, err := e.parse()
	if err != nil {
		return e.toRead()
	}
	return e.toRead() + extentOf(re).size()
}

// TestMeasureReadsNoFurther: an attack is refused for numbers alone. Nothing of it is
// compiled, and what is behind the bound is not even read.
func TestMeasureReadsNoFurther(t *testing.T) {
	var rules []Rule
	for i := range 300 {
		var m Match
		for j := range 60 {
			m.Paths = append(m.Paths, Value{Type: matchRegex, Value: fmt.Sprintf("/%d/%d/x{1,900}", i, j)})
		}
		rules = append(rules, Rule{Hosts: []string{"a.example"}, Matches: []Match{m}})
	}
	m := measuring{known: expressions{}}
	if m.match("", &rules[0].Matches[0], false) || len(m.known) > 100 || m.size > maxExpressions+2000 {
		t.Errorf("%d were read, of a size of %d", len(m.known), m.size)
	}
	for e, r := range m.known {
		if r.re != nil {
			t.Errorf("%s was compiled", e.text)
		}
	}
	var errs Errors
	if _, _, ok := measure(rules, &errs); ok || errs.Err() == nil {
		t.Error("it is no attack")
	}
}

// TestSizeIsOfWhatItBecomes: what little text makes much of counts much.
func TestSizeIsOfWhatItBecomes(t *testing.T) {
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, rune(0x100+2*i))
		}
		return b.String()
	}
	for _, tt := range []struct {
		name  string
		e     expression
		least int
	}{
		{"plain", expression{"/v1/items", false}, 10},
		{"repeat", expression{"x{1,900}", false}, 1800},
		{"repeats of repeats", expression{"(?:(?:ab{10}){10}){10}", false}, 1100},
		{"at least", expression{"[a-z]{500,}", false}, 500},
		{"branches", expression{many("%c?", 200), false}, 1000},
		{"tables", expression{strings.Repeat(`\p{L}`, 200), false}, 40_000},
		{"ranges in any case", expression{"[" + strings.Repeat("b-\U0001e942", 100) + "]", true}, 1_000_000},
		{"ranges in any case, by a flag", expression{"(?s:(?i)[" + strings.Repeat("b-\U0001e942", 100) + "])", false}, 1_000_000},
		{"ranges in any case, escaped", expression{`(?i)[\x{42}-\x{1e942}]`, false}, 12_000},
		{"ranges", expression{"[" + strings.Repeat("b-\U0001e942", 100) + "]", false}, 500},
		{"broken", expression{strings.Repeat("(", 900), false}, 900},
	} {
		if got := tt.e.size(); got < tt.least || got > 2*tt.least+100 {
			t.Errorf("%s: got %d, want some %d", tt.name, got, tt.least)
		}
	}
}

// FuzzSize: an expression is never larger than it was measured to be: neither what it is
// compiled to nor, by an order of magnitude, the memory that this takes.
func FuzzSize(f *testing.F) {
	for _, s := range []string{"x{1,900}", "(?:a|bc|d[^/]+)*?", "(?i)[a-z]{3,}(b(c)?){0}", `\pL?\PN*`, "(a?b?c?){5}", "a**|", "[[:^alpha:]]", "(|a)*"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, s string, fold bool) {
		if len(s) > maxText {
			return
		}
		e := expression{s, fold}
		re, err := e.parse()
		if err != nil {
			return
		}
		size := e.size()
		if size > maxExpressions {
			return
		}
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(prog.Inst); n > size {
			t.Errorf("%q has %d instructions, and was measured to be %d", s, n, size)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := regex{text: extentOf(re).text(e)}
		r.matches("/")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(size)*1000+64<<10 {
			t.Errorf("%q took %d bytes, and was measured to be %d", s, n, size)
		}
	})
}

// used reports the processors' time, whatever else the machine does.
func used(b *testing.B) {
	now := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := now()
	b.Cleanup(func() { b.ReportMetric((now()-begin).Seconds()*1000/float64(b.N), "cpu-ms/op") })
}

// BenchmarkExpressions is of as many as a policy may have, of kinds that make the most of
// their text: what it costs to read them, as at each check of a policy, and to have them all
// compiled besides, as a gate does in the end.
func BenchmarkExpressions(b *testing.B) {
	letters := func(n int) string {
		var s strings.Builder
		for i := range n {
			s.WriteString(string(rune(0x100+2*i)) + "?")
		}
		return s.String()
	}
	for _, bb := range []struct{ name, format string }{
		{"modest", `/repos/[A-Za-z0-9_.-]+/%d/(?:pulls|issues|commits)/[0-9a-f]{40}`},
		{"repeats", "/%d/x{1,900}"},
		{"classes", "/%d/[^/]{1,900}"},
		{"tables", `/%d/` + strings.Repeat(`\pL`, 100)},
		{"one table", `/%d/[` + strings.Repeat(`\pL`, 300) + `]`},
		{"folded", "(?i)/%d/[b-\U0001e942]"},
		{"branches", "/%d/" + letters(300)},
		{"words", "/%d/(?:" + strings.Repeat("ab|cd|efg|hi|", 60) + "z)"},
		{"text", "/%d/" + strings.Repeat("a", 900)},
		{"flags", "/%d/" + strings.Repeat("(?i)", 240)},
		{"groups", "/%d/" + strings.Repeat("(", 400) + "a" + strings.Repeat(")", 400)},
		{"broken", "/%d/" + strings.Repeat("(", 990)},
	} {
		var list []expression
		for size, i := 0, 0; ; i++ {
			e := expression{fmt.Sprintf(bb.format, i), false}
			if size += e.size(); size > maxExpressions {
				break
			}
			list = append(list, e)
		}
		read := func() expressions {
			m := measuring{known: expressions{}}
			for _, e := range list {
				if !m.add("", e) {
					b.Fatal("they do not fit")
				}
			}
			return m.known
		}
		b.Run(bb.name+"/read", func(b *testing.B) {
			used(b)
			b.ReportMetric(float64(len(list)), "expressions")
			for b.Loop() {
				read()
			}
		})
		b.Run(bb.name+"/compiled", func(b *testing.B) {
			used(b)
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range read() {
					if r != nil {
						r.matches("/")
					}
				}
			}
		})
	}
}

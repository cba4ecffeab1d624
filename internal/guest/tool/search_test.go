package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/guest/tool"
)

func TestGlob(t *testing.T) {
	w := newWorld(t, tool.Options{})
	for i, name := range []string{
		"src/a.ts", "src/deep/er/b.ts", "a.tsx", ".hidden/c.ts", "node_modules/d.ts", "src/node_modules/e.ts",
		"weird[1].ts", "x{y}.ts", "notes.md", "src/build/f.ts",
	} {
		w.put(name, "")
		at := time.Unix(1_700_000_000+int64(i), 0)
		must(t, os.Chtimes(w.path(name), at, at))
	}
	must(t, os.Symlink("/etc", w.path("etc.ts")))
	must(t, os.Chtimes(w.root, time.Unix(1, 0), time.Unix(1, 0)))
	for _, tt := range []struct {
		name, pattern, path string
		want                []string // without order
	}{
		{"everywhere", "*.ts", "", []string{"etc.ts", ".hidden/c.ts", "src/a.ts", "src/deep/er/b.ts", "weird[1].ts", "x{y}.ts"}},
		{"recursive", "**/*.ts", "", []string{"etc.ts", ".hidden/c.ts", "src/a.ts", "src/deep/er/b.ts", "weird[1].ts", "x{y}.ts"}},
		{"in-a-directory", "*.ts", "src", []string{"src/a.ts", "src/deep/er/b.ts"}},
		{"below-a-name", "src/**/*.ts", "", []string{"src/a.ts", "src/deep/er/b.ts"}},
		{"from-the-end", "er/*.ts", "", []string{"src/deep/er/b.ts"}},
		{"either", "*.{tsx,md}", "", []string{"a.tsx", "notes.md"}},
		{"one", "?.ts", "", []string{".hidden/c.ts", "src/a.ts", "src/deep/er/b.ts"}},
		{"set", "[ab].ts", "", []string{"src/a.ts", "src/deep/er/b.ts"}},
		{"range", "[a-b].ts", "", []string{"src/a.ts", "src/deep/er/b.ts"}},
		{"not-in-set", "[!ab].ts", "", []string{".hidden/c.ts"}},
		{"escaped", `weird\[1\].ts`, "", []string{"weird[1].ts"}},
		{"set-of-bracket", "weird[[]1].ts", "", []string{"weird[1].ts"}},
		{"directories", "deep", "", []string{"src/deep"}},
		{"all-below", "src/deep/**", "", []string{"src/deep/er", "src/deep/er/b.ts"}},
		{"dotted", "./src/*.ts", "", []string{"src/a.ts"}},
		{"nothing", "*.go", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := w.glob(tt.pattern, tt.path)
			wantOK(t, r.Failure)
			var want []string
			for _, rel := range tt.want {
				want = append(want, w.path(rel))
			}
			got := slices.Clone(r.Matches)
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" && len(got)+len(want) > 0 {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
			if r.Total != len(want) || r.Truncated {
				t.Errorf("total %d, truncated by %q", r.Total, r.TruncatedBy)
			}
		})
	}
	r := w.glob("*.{ts,tsx,md}", "")
	if got := r.Matches[1]; got != w.path("notes.md") { // the first is the link, made just now
		t.Errorf("the newest file is not the first: %q", r.Matches)
	}
	if diff := cmp.Diff([]string{"node_modules", "build"}, r.Skipped); diff != "" && !slices.Equal(r.Skipped, []string{"build", "node_modules"}) {
		t.Errorf("skipped %q", r.Skipped)
	}
	if r := w.glob("*.ts", "src/node_modules"); len(r.Matches) != 1 {
		t.Errorf("a directory that is named is searched: %q", r.Matches)
	}
	for _, tt := range []struct{ name, pattern, path, code string }{
		{"empty", "", "", tools.ToolInvalid},
		{"absolute", "/etc/*", "", tools.ToolInvalid},
		{"up", "../*", "", tools.ToolEscapes},
		{"up-within", "src/../../*", "", tools.ToolEscapes},
		{"open", "*.{ts,md}x{a", "", ""},
		{"open-brace", "{a,{b}", "", tools.ToolInvalid},
		{"long", strings.Repeat("x", tools.MaxPattern+1), "", tools.ToolInvalid},
		{"bad-range", "[z-a]", "", tools.ToolInvalid},
		{"a-file", "*", "a.tsx", tools.ToolInvalid},
		{"nowhere", "*", "nowhere", tools.ToolNotFound},
		{"link-out", "*", "etc.ts", tools.ToolEscapes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := w.glob(tt.pattern, tt.path); r.Code != tt.code {
				t.Errorf("got %+v, want code %q", r.Failure, tt.code)
			}
		})
	}
}

func TestGlobLimits(t *testing.T) {
	w := newWorld(t, tool.Options{})
	for i := range 105 {
		w.put(fmt.Sprintf("file-%03d.txt", i), "")
	}
	t.Run("test_glob_caps_match_count_and_returns_preview", func(t *testing.T) {
		r := w.glob("*.txt", w.root)
		if r.Total != 105 || len(r.Matches) != 100 || !r.Truncated || r.TruncatedBy != tools.ByMatches {
			t.Errorf("%d of %d, by %q", len(r.Matches), r.Total, r.TruncatedBy)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		dir := strings.Repeat(strings.Repeat("d", 200)+"/", 5)
		for i := range 90 {
			w.put(fmt.Sprintf("%s%03d.long", dir, i), "")
		}
		r := w.glob("*.long", "")
		if r.Total != 90 || len(r.Matches) >= 60 || r.TruncatedBy != tools.ByBytes {
			t.Errorf("%d of %d, by %q", len(r.Matches), r.Total, r.TruncatedBy)
		}
	})
}

// TestLargeTree looks at 100,000 entries and no further, in bounded time.
func TestLargeTree(t *testing.T) {
	w := newWorld(t, tool.Options{Budget: time.Hour}) // its bounds are of entries and files
	for d := range 101 {
		dir := w.path(fmt.Sprintf("d%03d", d))
		must(t, os.Mkdir(dir, 0o755))
		must(t, os.WriteFile(dir+"/f0000", []byte("some text\n"), 0o644))
		for f := range 999 {
			must(t, os.Link(dir+"/f0000", fmt.Sprintf("%s/f%04d", dir, f+1)))
		}
	}
	t.Run("test_glob_runs_off_event_loop_and_caps_directory_walk", func(t *testing.T) {
		start := time.Now()
		r := w.glob("f*", "")
		if r.TruncatedBy != tools.ByScan || r.Total < 99_000 || r.Total > tools.WalkEntries || len(r.Matches) != tools.GlobMatches {
			t.Errorf("%d matches, by %q", r.Total, r.TruncatedBy)
		}
		t.Logf("glob took %v", time.Since(start))
	})
	t.Run("files", func(t *testing.T) {
		r := w.grep(tools.GrepRequest{Pattern: "no such text", Include: "f*"})
		if r.TruncatedBy != tools.ByFiles || r.Files+r.Binary != tools.GrepFiles {
			t.Errorf("%d files, %d binary, by %q", r.Files, r.Binary, r.TruncatedBy)
		}
	})
	t.Run("given-up", func(t *testing.T) {
		// As soon as it must be for the walk not to be over first.
		for after := 5 * time.Millisecond; ; after /= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			_, _, err := w.post(ctx, tools.ToolGlob, "", []byte(`{"pattern":"f*"}`))
			cancel()
			if err != nil {
				break
			}
		}
		wantOK(t, w.read(tools.ReadRequest{Path: "d000/f0000", MaxBytes: 1, Encoding: "base64"}).Failure)
	})
}

// must2 returns v where err is nil.
func must2[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// A tree may be deeper than any path: it is searched as far as it is sane.
func TestDeepTree(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put(strings.Repeat("d/", 90)+"near", "x")
	w.put(strings.Repeat("d/", 150)+"far", "x")
	r := w.glob("*r", "")
	if r.Total != 1 || r.TruncatedBy != tools.ByDepth {
		t.Errorf("%d matches, by %q", r.Total, r.TruncatedBy)
	}
}

func TestGrep(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put("data.txt", "needle "+strings.Repeat("x", 600)+"\n")
	w.put("src/a.py", "import os\nneedle = 1\r\n\n  Needle\t \nlast needle")
	w.put("src/b.go", "package b // needle\n")
	w.put(".git/config", "needle\n")
	w.put("bin", "needle\x00\n")
	w.put("bad", "\xffneedle\xfe\n")
	must(t, os.WriteFile(w.path("private"), []byte("needle"), 0o600))
	must(t, os.Symlink("/etc", w.path("etc")))
	must(t, os.Symlink("data.txt", w.path("again")))
	m := func(file string, line int64, content string) tools.GrepMatch {
		return tools.GrepMatch{File: w.path(file), Line: line, Content: content}
	}
	for _, tt := range []struct {
		name string
		q    tools.GrepRequest
		want []tools.GrepMatch
	}{
		{"in-a-tree", tools.GrepRequest{Pattern: "needle", Path: "src"}, []tools.GrepMatch{
			m("src/a.py", 2, "needle = 1"), m("src/a.py", 5, "last needle"), m("src/b.go", 1, "package b // needle"),
		}},
		{"in-a-file", tools.GrepRequest{Pattern: "^needle", Path: "src/a.py"}, []tools.GrepMatch{m("src/a.py", 2, "needle = 1")}},
		{"at-the-end", tools.GrepRequest{Pattern: `1$`, Path: "src"}, []tools.GrepMatch{m("src/a.py", 2, "needle = 1")}},
		{"any-case", tools.GrepRequest{Pattern: "(?i)^ +needle", Path: "src"}, []tools.GrepMatch{m("src/a.py", 4, "  Needle")}},
		{"include", tools.GrepRequest{Pattern: "needle", Include: "*.go"}, []tools.GrepMatch{m("src/b.go", 1, "package b // needle")}},
		{"literal-prefix", tools.GrepRequest{Pattern: "last needl[e]"}, []tools.GrepMatch{m("src/a.py", 5, "last needle")}},
		{"anchored", tools.GrepRequest{Pattern: "^needle$", Path: "src"}, nil},
		{"whole-line", tools.GrepRequest{Pattern: "^import os$"}, []tools.GrepMatch{m("src/a.py", 1, "import os")}},
		{"repaired", tools.GrepRequest{Pattern: "needle", Path: "bad"}, []tools.GrepMatch{m("bad", 1, "\ufffdneedle\ufffd")}},
		{"nothing", tools.GrepRequest{Pattern: "no such"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := w.grep(tt.q)
			wantOK(t, r.Failure)
			if diff := cmp.Diff(tt.want, r.Matches); diff != "" && len(tt.want)+len(r.Matches) > 0 {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
			if r.Total != len(tt.want) || r.Truncated || r.Matches == nil {
				t.Errorf("total %d, by %q", r.Total, r.TruncatedBy)
			}
		})
	}
	t.Run("test_grep_reports_invalid_regex_and_truncates_long_matching_lines", func(t *testing.T) {
		wantFailure(t, w.grep(tools.GrepRequest{Pattern: "["}).Failure, tools.ToolInvalid, "Invalid regex")
		r := w.grep(tools.GrepRequest{Pattern: "needle", Path: w.root})
		i := slices.IndexFunc(r.Matches, func(m tools.GrepMatch) bool { return m.File == w.path("data.txt") })
		if !r.Truncated || r.TruncatedBy != tools.ByLine || i < 0 || !strings.HasSuffix(r.Matches[i].Content, "... [truncated]") {
			t.Errorf("by %q: %+v", r.TruncatedBy, r.Matches)
		}
		if r.Binary != 1 || r.Unreadable != 1 || !slices.Equal(r.Skipped, []string{".git"}) {
			t.Errorf("passed over: %+v", r.Searched)
		}
		for _, m := range r.Matches {
			if strings.Contains(m.File, "again") || strings.Contains(m.File, "etc") {
				t.Errorf("a link was followed: %s", m.File)
			}
		}
	})
	for _, tt := range []struct {
		name, code string
		q          tools.GrepRequest
	}{
		{"empty", tools.ToolInvalid, tools.GrepRequest{}},
		{"long", tools.ToolInvalid, tools.GrepRequest{Pattern: strings.Repeat("x", tools.MaxPattern+1)}},
		{"look-ahead", tools.ToolInvalid, tools.GrepRequest{Pattern: "(?=x)"}},
		{"line-end", tools.ToolInvalid, tools.GrepRequest{Pattern: "a\nb"}},
		{"include", tools.ToolInvalid, tools.GrepRequest{Pattern: "a", Include: "/x"}},
		{"nowhere", tools.ToolNotFound, tools.GrepRequest{Pattern: "a", Path: "nowhere"}},
		{"link-out", tools.ToolEscapes, tools.GrepRequest{Pattern: "a", Path: "etc"}},
		{"escape", tools.ToolEscapes, tools.GrepRequest{Pattern: "a", Path: "/etc"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := w.grep(tt.q); r.Code != tt.code || r.OK {
				t.Errorf("got %+v, want code %q", r.Failure, tt.code)
			}
		})
	}
}

func TestGrepLimits(t *testing.T) {
	w := newWorld(t, tool.Options{})
	t.Run("matches", func(t *testing.T) {
		w.put("one/f", strings.Repeat("x\n", tools.GrepMatches))
		if r := w.grep(tools.GrepRequest{Pattern: "x", Path: "one"}); r.Truncated || r.Total != tools.GrepMatches {
			t.Errorf("as many as may be: %d, by %q", r.Total, r.TruncatedBy)
		}
		w.put("one/g", "x\n")
		if r := w.grep(tools.GrepRequest{Pattern: "x", Path: "one"}); r.TruncatedBy != tools.ByMatches || r.Total != tools.GrepMatches {
			t.Errorf("one more: %d, by %q", r.Total, r.TruncatedBy)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		w.put("two/f", strings.Repeat(strings.Repeat("y", 490)+"\n", 150))
		r := w.grep(tools.GrepRequest{Pattern: "y", Path: "two"})
		if b := must2(json.Marshal(r.Matches))(t); r.TruncatedBy != tools.ByBytes || len(b) > tools.MaxToolBytes {
			t.Errorf("%d bytes, by %q", len(b), r.TruncatedBy)
		}
	})
	t.Run("lines", func(t *testing.T) {
		long := strings.Repeat("z", 3*tools.GrepLineBytes)
		w.put("three/f", "a\n"+long+"far\nnear\n"+long+"far")
		r := w.grep(tools.GrepRequest{Pattern: "far|near", Path: "three"})
		want := []tools.GrepMatch{{File: w.path("three/f"), Line: 3, Content: "near"}}
		if diff := cmp.Diff(want, r.Matches); diff != "" || r.TruncatedBy != tools.ByLine {
			t.Errorf("by %q (-want +got):\n%s", r.TruncatedBy, diff)
		}
	})
	t.Run("scan", func(t *testing.T) {
		w.put("four/f", strings.Repeat("line\n", (tools.GrepFileBytes+1<<20)/5)+"far\n")
		w.put("four/g", "far\n")
		r := w.grep(tools.GrepRequest{Pattern: "fa[r]", Path: "four"})
		if r.TruncatedBy != tools.ByScan || r.Total != 1 || r.Matches[0].File != w.path("four/g") {
			t.Errorf("by %q: %+v", r.TruncatedBy, r.Matches)
		}
	})
}

// TestCatastrophicRegex looks with what hangs others, and with what takes even
// this one long.
func TestCatastrophicRegex(t *testing.T) {
	patient, hasty := newWorld(t, tool.Options{Budget: time.Hour}), newWorld(t, tool.Options{Budget: 2 * second})
	for _, tt := range []struct {
		name, pattern string
		w             *world
		by            tools.Cause
	}{
		{"nested", `(a+)+$`, patient, ""},
		{"alternatives", `(a|aa)+$`, patient, ""},
		{"classic", `^(([a-z])+.)+[A-Z]([a-z])+$`, patient, ""},
		{"test_grep_interrupts_catastrophic_regex", strings.Repeat(`(a?){1000}`, 100) + "b", hasty, tools.ByTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.w.put("data.txt", strings.Repeat("a", 100_000)+"!")
			start := busy(t)
			r := tt.w.grep(tools.GrepRequest{Pattern: tt.pattern})
			wantOK(t, r.Failure)
			if took := busy(t) - start; r.TruncatedBy != tt.by || r.Total != 0 || took > 10*second {
				t.Errorf("by %q after %v of work: %+v", r.TruncatedBy, took, r.Matches)
			}
		})
	}
}

// busy is for how long this process has had a processor: on a machine that has
// much to do, the clock says little of what was done.
func busy(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The more there is to do at each character, the sooner it is seen that the
// time is over.
func TestLateSearchEndsSoon(t *testing.T) {
	for _, expr := range []string{`(a+)+$`, strings.Repeat(`(a?){1000}`, 30) + "b"} {
		steps, err := tool.Late(t.Context(), expr, strings.Repeat("a", tool.MaxCost))
		must(t, err)
		if steps > tool.MaxCost {
			t.Errorf("%.20s: %d steps after the end of its time, of at most %d", expr, steps, tool.MaxCost)
		}
	}
}

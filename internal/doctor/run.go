package doctor

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
)

// Options say what to look at.
type Options struct {
	Version string
	Exe     string // carboy's own file; "" where that is not known
	Dirs    home.Dirs
	DirsErr error  // why there are no Dirs, or nil
	Home    string // the caller's home directory; "": none
	Default string // the wall of a sandbox that names none
	Walls   []Wall // in the order in which they are tried
	// Gate opens what starts gates over a state directory; nil: no network is
	// tried.
	Gate func(state string) (Gate, error)
}

// Bounds of the whole.
const (
	checkLimit    = 15 * time.Second
	imageLimit    = time.Minute // its first build reads thousands of files
	instanceLimit = 2 * time.Minute
	// grace is how long a check whose time is over may take to notice.
	grace = time.Second
	// atOnce bounds the checks that run together.
	atOnce = 4
)

// machine is what checks look at.
type machine struct {
	opts    Options
	uid     int
	root    bool
	scratch *scratch
	// scratchErr says why scratch is not where the state directory is, or nil.
	scratchErr error
}

// check is one line or more of a report.
type check struct {
	id, area, title string
	limit           time.Duration // default: checkLimit
	run             func(context.Context, *machine) []Line
}

// one makes a check's body of a function that gives a single line.
func one(f func(context.Context, *machine) Line) func(context.Context, *machine) []Line {
	return func(ctx context.Context, m *machine) []Line { return []Line{f(ctx, m)} }
}

// Run tries everything. It fails where ctx ends; whatever else
// goes wrong is in the Report.
func Run(ctx context.Context, o Options) (Report, error) {
	m := newMachine(o)
	m.enterScratch(ctx)
	r := Report{
		Version: o.Version, Kernel: kernelRelease(), OS: distribution(), Arch: runtime.GOARCH,
		UID: m.uid, Root: m.root, Default: o.Default, Walls: map[string]Verdict{},
		private: privateNames(o),
	}
	r.Lines = m.lines(ctx, checks())
	for _, w := range o.Walls {
		r.Walls[w.Name] = weakenedBy(m.try(ctx, w), r.Lines, w.Name)
	}
	r.Lines = append(r.Lines, m.lines(ctx, m.networkChecks(r.Walls))...)
	r.Facts = m.facts()
	if err := m.scratch.remove(); err != nil {
		r.Lines = append(r.Lines, Line{
			ID: "left", Area: "storage", Title: "clean-up", State: Weaker, Found: "not all that was tried could be removed: " + err.Error(),
		}.mendedBy("carboy doctor, once more, removes it"))
	}
	if ctx.Err() != nil {
		return Report{}, context.Cause(ctx)
	}
	return r, nil
}

func newMachine(o Options) *machine {
	return &machine{opts: o, uid: os.Geteuid(), root: os.Geteuid() == 0}
}

// lines runs the checks, some at once, and returns their lines in order.
func (m *machine) lines(ctx context.Context, list []check) []Line {
	slots := make(chan struct{}, atOnce)
	results := make([]chan []Line, len(list))
	for i, c := range list {
		results[i] = make(chan []Line, 1)
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] <- m.guarded(ctx, c)
		}()
	}
	var out []Line
	for _, r := range results {
		out = append(out, <-r...)
	}
	return out
}

// guarded runs one check within its limit and survives its panic. A check
// that does not even notice that its time is over is left behind.
func (m *machine) guarded(ctx context.Context, c check) []Line {
	if c.limit == 0 {
		c.limit = checkLimit
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	done := make(chan []Line, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- []Line{outcome(Missing, fmt.Sprintf("the check itself failed: %v", p)).
					mendedBy("report it, with: carboy doctor --report")}
			}
		}()
		done <- c.run(ctx, m)
	}()
	late := time.NewTimer(c.limit + grace)
	defer late.Stop()
	var lines []Line
	select {
	case lines = <-done:
	case <-late.C:
		lines = []Line{outcome(Missing, fmt.Sprintf("no answer within %v", c.limit))}
	}
	for i := range lines {
		l := &lines[i]
		l.Area = c.area
		if l.ID == "" {
			l.ID, l.Title = c.id, c.title
		}
	}
	return lines
}

// kernelRelease is the kernel's, as uname -r says it.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

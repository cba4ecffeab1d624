package hostfiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How often the host's count is read: a program opens a million files in a
// second.
const (
	calmPeriod = 250 * time.Millisecond
	nearPeriod = 25 * time.Millisecond
	// rest is how many times as long as a count an instance is left alone after it:
	// the host's files may be short through no fault of the instance.
	rest = 4
)

// Counter is where the kernel counts open files: taken, 0, and the most.
const Counter = "/proc/sys/fs/file-nr"

// Options say what to keep to.
type Options struct {
	Share   uint64 // files that the instance may hold while the host's are short
	Counter string // default: Counter
	// Processes lists those that may be ended.
	Processes func() ([]int, error)
	// Freeze stops them while they are counted; nil: they go on.
	Freeze func(frozen bool) error
	Log    *slog.Logger
}

// Watch looks after an instance's files. Open makes one.
type Watch struct {
	opts    Options
	counter *os.File

	mu    sync.Mutex
	ended map[int]struct{}
	last  time.Time // when one was ended
}

// Open opens the counter, for which there may be no descriptor later on.
func Open(opts Options) (*Watch, error) {
	if opts.Counter == "" {
		opts.Counter = Counter
	}
	f, err := os.Open(opts.Counter)
	if err != nil {
		return nil, fmt.Errorf("watch the host's open files: %w", err)
	}
	return &Watch{opts: opts, counter: f, ended: map[int]struct{}{}}, nil
}

// Run looks until ctx ends. It is called once, and closes the Watch.
func (w *Watch) Run(ctx context.Context) {
	defer w.counter.Close()
	t := time.NewTimer(calmPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		period, err := w.look()
		if err != nil {
			w.opts.Log.Warn("watch the host's open files", "err", err)
		}
		t.Reset(period)
	}
}

// look reads the count, does what it asks for, and says when to look again.
func (w *Watch) look() (time.Duration, error) {
	taken, most, err := w.read()
	switch {
	case err != nil:
		return calmPeriod, err
	case taken > most/2:
		began := time.Now()
		err := w.keep()
		return max(nearPeriod, rest*time.Since(began)), err
	case taken > most/4:
		return nearPeriod, nil
	}
	return calmPeriod, nil
}

func (w *Watch) read() (taken, most uint64, err error) {
	var b [128]byte
	n, err := unix.Pread(int(w.counter.Fd()), b[:], 0)
	if err != nil {
		return 0, 0, err
	}
	return parseCounter(string(b[:n]))
}

func parseCounter(text string) (taken, most uint64, err error) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return 0, 0, fmt.Errorf("%.64q is no count of files", text)
	}
	taken, err = strconv.ParseUint(f[0], 10, 64)
	most, err2 := strconv.ParseUint(f[2], 10, 64)
	return taken, most, errors.Join(err, err2)
}

// holder is a process and what it holds.
type holder struct {
	pid   int
	files uint64
}

// keep counts, and ends the largest of those that it has seen whenever they
// hold more than the share: to count them all first takes seconds where there
// is most to count.
func (w *Watch) keep() (err error) {
	if w.opts.Freeze != nil {
		if err := w.opts.Freeze(true); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.opts.Freeze(false)) }()
	}
	pids, err := w.opts.Processes()
	if err != nil {
		return err
	}
	var seen []holder // the largest last
	var total uint64
	for _, pid := range pids {
		h := holder{pid, Held(pid)}
		at, _ := slices.BinarySearchFunc(seen, h, func(a, b holder) int { return cmp.Compare(a.files, b.files) })
		seen = slices.Insert(seen, at, h)
		for total += h.files; total > w.opts.Share; seen = seen[:len(seen)-1] {
			last := seen[len(seen)-1]
			if err := w.end(last, total); err != nil {
				return err
			}
			total -= last.files
		}
	}
	return nil
}

func (w *Watch) end(h holder, total uint64) error {
	// It is one of the instance's, whichever has the number by now.
	if err := unix.Kill(h.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", h.pid, err)
	}
	w.note(h.pid)
	w.opts.Log.Warn("ended a process: the host's open files run short, and the instance holds more than its part",
		"pid", h.pid, "files", h.files, "all", total, "part", w.opts.Share)
	return nil
}

func (w *Watch) note(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ended) >= 1<<12 { // nobody asked for those
		clear(w.ended)
	}
	w.ended[pid], w.last = struct{}{}, time.Now()
}

// Ended reports whether a process was ended here, and forgets that. A nil
// Watch has ended none.
func (w *Watch) Ended(pid int) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.ended[pid]
	delete(w.ended, pid)
	return ok
}

// EndedSince reports whether any process was ended here after a moment.
func (w *Watch) EndedSince(t time.Time) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.After(t)
}

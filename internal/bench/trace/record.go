package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
)

// errLost is a trace that is not whole.
var errLost = errors.New("the trace has no room for all events")

// Record runs a command and tells what it and the processes in pids did meanwhile.
// start must start the command on the thread that it is called on, and return
// once it has ended; an error of it is Record's. Nothing stays, however it ends.
func (k *Kernel) Record(pids []int, start func() error) (_ Run, err error) {
	runtime.LockOSThread() // its children are followed, so they must be its own
	defer runtime.UnlockOSThread()
	known := Known{Caller: unix.Gettid(), Tasks: map[int]int{}, Names: map[int]string{}}
	for _, pid := range pids {
		known.Names[pid] = nameNow(pid)
	}
	follow := append(known.find(pids), known.Caller)
	names, err := k.newInstance("-names", bufferExec, []string{"sched/sched_process_exec"}, follow)
	if err != nil {
		return Run{}, err
	}
	defer func() { err = errors.Join(err, names.remove()) }()
	i, err := k.newInstance("", bufferSize(), scheduling, follow)
	if err != nil {
		return Run{}, err
	}
	defer func() { err = errors.Join(err, i.remove()) }()
	// What a task made before it was followed is not: so until there is nothing new.
	for more := known.find(pids); len(more) > 0; more = known.find(pids) {
		if err := errors.Join(i.follow(more), names.follow(more)); err != nil {
			return Run{}, err
		}
	}
	w, err := names.watch()
	if err != nil {
		return Run{}, err
	}
	err = i.set("tracing_on", "1")
	if err == nil {
		err = errors.Join(start(), i.set("tracing_on", "0"))
	}
	seen, werr := w.stop()
	if err = errors.Join(err, werr); err != nil {
		return Run{}, err
	}
	for pid, name := range seen {
		known.Names[pid] = name
	}
	return i.account(known)
}

// account reads what was recorded.
func (i *instance) account(known Known) (Run, error) {
	p, err := i.read()
	if err != nil {
		return Run{}, err
	}
	if p.Lost {
		return Run{}, errLost
	}
	run, err := Account(p.Events, known)
	run.Unread = p.Unread
	if err != nil {
		err = fmt.Errorf("%w (events: %d, lines not understood: %d)", err, len(p.Events), p.Unread)
	}
	return run, err
}

// find adds the tasks of processes, and returns those that are new.
func (k *Known) find(pids []int) (tids []int) {
	for _, pid := range pids {
		entries, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task")) // none: it has ended
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || k.Tasks[tid] != 0 {
				continue
			}
			k.Tasks[tid] = pid
			tids = append(tids, tid)
		}
	}
	return tids
}

// maxName bounds what is kept of argv[0], which whoever starts a process chooses.
const maxName = 128

// argv0 is what a process was told that its name is; "" where it has ended.
func argv0(pid int) string {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, maxName)
	n, _ := f.Read(b) // nothing: it is ending
	name, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(name)
}

// maxForks bounds how far the name of a fork is looked for.
const maxForks = 8

// nameNow is argv[0] of a process that lives. One that has none is a fork which
// has given up its memory: it goes by the process that it comes from.
func nameNow(pid int) string {
	for n := range maxForks {
		if name := argv0(pid); name != "" && n > 0 {
			return forkOf(name)
		} else if name != "" {
			return name
		}
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			return ""
		}
		s, err := procid.ParseStat(line)
		if err != nil {
			return ""
		}
		pid = s.PPID
	}
	return ""
}

// watcher reads the names of processes as they execute something.
type watcher struct {
	pipe, bell int
	done       chan map[int]string
}

// watch begins to. The kernel's own name for what executes itself is "exe".
func (i *instance) watch() (*watcher, error) {
	_ = i.set("buffer_percent", "0") // older kernels have none, and need none
	pipe, err := unix.Open(filepath.Join(i.dir, "trace_pipe"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("trace_pipe: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(err, unix.Close(pipe))
	}
	w := &watcher{pipe: pipe, bell: bell, done: make(chan map[int]string, 1)}
	if err := i.set("tracing_on", "1"); err != nil {
		return nil, errors.Join(err, unix.Close(pipe), unix.Close(bell))
	}
	go w.loop()
	return w, nil
}

func (w *watcher) loop() {
	names := map[int]string{}
	defer func() { w.done <- names }()
	b := make([]byte, maxLine)
	for rest := ""; ; {
		fds := []unix.PollFd{{Fd: int32(w.pipe), Events: unix.POLLIN}, {Fd: int32(w.bell), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for {
			n, err := unix.Read(w.pipe, b)
			if n <= 0 || err != nil {
				break
			}
			rest = note(names, rest+string(b[:n]))
		}
		if fds[1].Revents != 0 {
			return
		}
	}
}

// note adds the names of what text says that was executed, and returns what is
// not a whole line yet.
func note(names map[int]string, text string) (rest string) {
	for {
		line, more, ok := strings.Cut(text, "\n")
		if !ok {
			return text[max(0, len(text)-maxLine):]
		}
		if e, err := ParseLine(line); err == nil && e.Kind == Exec {
			if name := argv0(e.PID); name != "" {
				names[e.PID] = name
			}
		}
		text = more
	}
}

// stop ends it and returns what it read.
func (w *watcher) stop() (map[int]string, error) {
	_, err := unix.Write(w.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if err != nil {
		return nil, err // cannot be: nothing was written to it before
	}
	names := <-w.done
	return names, errors.Join(unix.Close(w.pipe), unix.Close(w.bell))
}

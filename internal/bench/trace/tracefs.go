package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// prefix begins the names of our instances; the number of a process follows.
const prefix = "carboy-bench-"

// Buffers of instances, in KiB: of one for each processor, and of all.
const (
	bufferEach = 8 << 10
	bufferAll  = 128 << 10
	bufferExec = 64
)

// machinePIDs is the pid namespace that a kernel begins with, as it names it.
const machinePIDs = "pid:[4026531836]"

// scheduling are the events that Account reads.
var scheduling = []string{
	"task/task_newtask", "sched/sched_process_exec", "sched/sched_process_exit", "sched/sched_switch",
	"sched/sched_waking", "sched/sched_wakeup", "sched/sched_wakeup_new",
}

// Kernel is a tracefs that nobody else sees.
type Kernel struct{ mount *os.File }

// Open attaches a tracefs to nothing but a descriptor of this process, and takes
// away instances of processes that were killed. The error says what is missing.
func Open() (*Kernel, error) {
	if os.Geteuid() != 0 {
		return nil, sandbox.Errorf(sandbox.Denied, "trace: it needs root, for the kernel's trace events")
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != machinePIDs {
		return nil, sandbox.Errorf(sandbox.Unsupported, "trace: it must run outside of containers: the kernel's trace events have the machine's own process numbers")
	}
	mount, err := attach()
	if err == nil {
		k := &Kernel{mount: mount}
		if err = k.sweep(); err == nil {
			return k, nil
		}
		mount.Close()
	}
	return nil, sandbox.Errorf(sandbox.Unsupported, "trace: no trace events to be had: %v: it needs a kernel with tracefs and CAP_SYS_ADMIN, and no lockdown", err)
}

// attach makes a mount that is in no namespace, and gone with its descriptor.
func attach() (*os.File, error) {
	context, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open tracefs: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("make a tracefs: %w", err)
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount a tracefs: %w", err)
	}
	return os.NewFile(uintptr(fd), "tracefs"), nil
}

// Close lets go of k.
func (k *Kernel) Close() error { return k.mount.Close() }

// instances is the directory of all instances.
func (k *Kernel) instances() string {
	return fmt.Sprintf("/proc/self/fd/%d/instances", k.mount.Fd())
}

// owner is the process that an instance of ours is for; 0: it is not ours.
func owner(name string) int {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(digits)
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// sweep removes what processes left that were killed.
func (k *Kernel) sweep() error {
	entries, err := os.ReadDir(k.instances())
	for _, e := range entries {
		if pid := owner(e.Name()); pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(filepath.Join(k.instances(), e.Name())) // the next one tries again
		}
	}
	return err
}

// instance is a buffer of events with settings of its own.
type instance struct{ dir string }

// newInstance makes one that follows tasks, and writes nothing down yet. No event
// is enabled before it is known of whom.
func (k *Kernel) newInstance(suffix string, kilobytes int, events []string, tids []int) (_ *instance, err error) {
	i := &instance{dir: filepath.Join(k.instances(), prefix+strconv.Itoa(os.Getpid())+suffix)}
	if err := os.Mkdir(i.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.remove())
		}
	}()
	for _, s := range [][2]string{
		{"tracing_on", "0"},
		{"trace_clock", "mono"},
		{"buffer_size_kb", strconv.Itoa(kilobytes)},
		{"options/event-fork", "1"},
		{"options/irq-info", "1"},
	} {
		if err := i.set(s[0], s[1]); err != nil {
			return nil, err
		}
	}
	if err := i.follow(tids); err != nil {
		return nil, err
	}
	for _, e := range events {
		if err := i.set(filepath.Join("events", e, "enable"), "1"); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// set writes to a file without emptying it first, which means something else.
func (i *instance) set(name, value string) error {
	f, err := os.OpenFile(filepath.Join(i.dir, name), os.O_WRONLY, 0)
	if err != nil {
		return short(err)
	}
	_, err = f.WriteString(value)
	return short(errors.Join(err, f.Close()))
}

// short names a file as the kernel's documents do.
func short(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		_, name, _ := strings.Cut(e.Path, "/instances/")
		_, name, _ = strings.Cut(name, "/")
		return fmt.Errorf("%s: %w", name, e.Err)
	}
	return err
}

// follow adds tasks, with all that they start from now on.
func (i *instance) follow(tids []int) error {
	var b strings.Builder
	for _, tid := range tids {
		fmt.Fprintf(&b, "%d ", tid)
	}
	if b.Len() == 0 {
		return errors.New("set_event_pid: nothing to follow, and that would be all")
	}
	return i.set("set_event_pid", b.String())
}

// read parses what is there.
func (i *instance) read() (Parsed, error) {
	f, err := os.Open(filepath.Join(i.dir, "trace"))
	if err != nil {
		return Parsed{}, short(err)
	}
	defer f.Close()
	return Parse(f)
}

// remove takes i away, which stops it too.
func (i *instance) remove() error {
	err := os.Remove(i.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// bufferSize is that of one processor's part, in KiB.
func bufferSize() int { return max(512, min(bufferEach, bufferAll/runtime.NumCPU())) }

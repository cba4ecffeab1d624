package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Dir is where programs are unpacked, in the state directory.
const Dir = "programs"

// Set is the programs of this binary, open to be executed.
type Set struct {
	files  map[string]*os.File
	packed map[string]packed
	// Note is a line for the user where the programs are in memory, or "".
	Note string
}

// lowest is the least descriptor of a program: a child's own are below it, so that none
// takes its place before the program is executed.
const lowest = 256

// Path leads to a program, in this process and in its children until they execute it.
func (s *Set) Path(name string) (string, error) {
	before := s.files[name]
	fd, err := unix.FcntlInt(before.Fd(), unix.F_DUPFD_CLOEXEC, lowest)
	if err != nil {
		return "", fmt.Errorf("keep %s open: %w", name, err)
	}
	s.files[name] = os.NewFile(uintptr(fd), before.Name())
	_ = before.Close() // it is open by the other number
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

// File is a program, open to be read and executed alone, and closed on exec.
func (s *Set) File(name string) *os.File { return s.files[name] }

// Handed is what another process is told of a program that it has by the descriptor fd.
func (s *Set) Handed(name string, fd int) order.Program {
	p := s.packed[name]
	h := order.Program{FD: fd, Digest: p.digest, Size: p.size}
	if path := s.files[name].Name(); filepath.IsAbs(path) && !strings.HasPrefix(path, "/proc/") {
		h.Path = path
	}
	return h
}

// Close closes the programs. What executes one keeps it.
func (s *Set) Close() error {
	var err error
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Open opens the programs below the state directory of a home, which is there, and
// unpacks those that are not; what is left there of other versions, and executed by
// nobody, goes. Where no program can be kept or executed there, all are in memory.
func Open(ctx context.Context, dirs home.Dirs) (*Set, error) {
	all, err := carried()
	if err = errors.Join(err, enoughFiles()); err != nil {
		return nil, err
	}
	return open(ctx, dirs, all)
}

// fewestFiles is how many files a process may have open that executes programs: they have
// descriptors above those of its children.
const fewestFiles = 512

func enoughFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("look at the limit of open files: %w", err)
	}
	if l.Max < fewestFiles {
		return sandbox.Errorf(sandbox.Unsupported, "a process may have %d files open here, and carboy needs %d", l.Max, fewestFiles).
			WithHint("ulimit -Hn 4096, as root, before carboy is started")
	}
	return nil
}

// Borrow is Open for a caller that leaves nothing: what is not unpacked is in memory.
func Borrow(dirs home.Dirs) (*Set, error) {
	all, err := carried()
	if err = errors.Join(err, enoughFiles()); err != nil {
		return nil, err
	}
	return borrow(dirs, all)
}

func borrow(dirs home.Dirs, all []packed) (*Set, error) {
	at := at(dirs.State)
	return gather(all, func(p packed) (*os.File, error) {
		if f, err := at.find(p); err == nil {
			return f, nil
		}
		return inMemory(p)
	})
}

func open(ctx context.Context, dirs home.Dirs, all []packed) (*Set, error) {
	at := at(dirs.State)
	s, err := gather(all, at.find)
	if err == nil {
		at.sweepOthers(all)
		return s, nil
	}
	s, err = at.fill(ctx, all)
	if err == nil || ctx.Err() != nil {
		return s, err
	}
	s, merr := gather(all, inMemory)
	if merr != nil {
		return nil, errors.Join(fmt.Errorf("unpack carboy's programs: %w", err), merr)
	}
	why := strings.ReplaceAll(err.Error(), "\n", "; ")
	s.Note = fmt.Sprintf("carboy's programs are in memory, %d MiB, for as long as they run: %s", total(all)>>20, why)
	return s, nil
}

func total(all []packed) (n int64) {
	for _, p := range all {
		n += p.size
	}
	return n
}

// gather opens all programs, several at once, or none.
func gather(all []packed, open func(packed) (*os.File, error)) (*Set, error) {
	files, errs := make([]*os.File, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { files[i], errs[i] = open(p) })
	}
	wg.Wait()
	s := &Set{files: map[string]*os.File{}, packed: map[string]packed{}}
	for i, p := range all {
		s.packed[p.name] = p
		if files[i] != nil {
			s.files[p.name] = files[i]
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// inMemory unpacks a program into a file of this process's memory, sealed: nobody can
// change it any more.
func inMemory(p packed) (*os.File, error) {
	fd, err := unix.MemfdCreate(p.name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(p.name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "%s can't be kept in memory: %v", p.name, err).
			WithHint("sysctl vm.memfd_noexec says whether programs may be, or make room in the state directory")
	}
	f := os.NewFile(uintptr(fd), p.name)
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	err = p.unpack(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		err = order.Check(f, p.digest, p.size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unpack %s into memory: %w", p.name, err), f.Close())
	}
	// Anew, to be read alone.
	r, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return r, errors.Join(err, f.Close())
}

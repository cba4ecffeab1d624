package jail

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// ownExe leads to the program that the calling process executed.
const ownExe = "/proc/self/exe"

// KeepProgram makes sure that nobody executes the calling process's program by way
// of /proc, root neither. Until it executes its own program a command's process is
// the agent, and the kernel opens the interpreter in the first line of that
// program, or its loader, for it as it is: with the agent's memory, by whose
// file /proc/self/exe goes.
//
// On the host's kernel the program's mount executes nothing by now: whoever
// started the agent has seen to that. A kernel of the guest's own is told
// that the program is another, which nobody may execute. Where neither holds it is
// an error.
func KeepProgram() error {
	if weak.On(weak.ProgramShown) {
		return nil
	}
	kept, err := programKept()
	if err == nil && !kept {
		if err = forgetProgram(); err == nil {
			kept, err = programKept()
		}
	}
	if err == nil && !kept {
		err = errors.New("it can still be executed by " + ownExe)
	}
	if err != nil {
		return fmt.Errorf("keep the agent's program from commands: %w", err)
	}
	return nil
}

// programKept reports whether this process, which may all that there is, may not
// execute its program anew.
func programKept() (bool, error) {
	err := unix.Faccessat(unix.AT_FDCWD, ownExe, unix.X_OK, 0)
	if errors.Is(err, unix.EACCES) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", ownExe, err)
	}
	return false, nil
}

// forgetProgram has an empty file without any rights stand for this process's
// program. Linux refuses that for as long as the program is mapped; gVisor does not.
func forgetProgram() error {
	fd, err := unix.MemfdCreate("agent", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, 0); err != nil {
		return fmt.Errorf("take the rights to a file: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_EXE_FILE, uintptr(fd), 0, 0); err != nil {
		return fmt.Errorf("forget what was executed: %w", err)
	}
	return nil
}

package disk

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Of the bits of e2fsck's exit code: it found errors, and mended them all.
const fsckMended = 1

// Repair has e2fsck mend the file system of an image in which the kernel noted an error,
// as far as that needs no decision, and reports whether it did. One that has no such note,
// or is attached, is left as it is. What needs a decision is an Internal error with what to do.
func Repair(ctx context.Context, path string) (mended bool, err error) {
	img, err := openImage(path)
	if err != nil {
		return false, err
	}
	defer img.Close()
	sb, err := readSuperblock(img)
	if err != nil || !sb.broken {
		return false, err
	}
	if err := lockAttach(ctx, img); err != nil {
		return false, fmt.Errorf("repair disk image %s: %w", path, err)
	}
	mine, err := lockAttached(img)
	if err != nil || mine == nil { // somebody has it mounted
		return false, err
	}
	defer mine.Close()
	tool, err := find("e2fsck")
	if err != nil {
		return false, err
	}
	out, err := command(ctx, tool, "-p", path).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err == nil || ok && exit.ExitCode() == fsckMended {
		return true, nil
	}
	e := sandbox.Errorf(sandbox.Internal, "disk image %s is damaged, and e2fsck -p could not mend it: %.300s", path, strings.TrimSpace(string(out)))
	e.Err = err
	return false, e.WithHint("e2fsck -f %s", path)
}

// Tool finds a program of e2fsprogs. Where it is not installed, the Unsupported error says
// which package has it.
func Tool(name string) (string, error) { return find(name) }

// Command returns a program of e2fsprogs, found by Tool, in an environment that changes
// nothing of what it does.
func Command(ctx context.Context, tool string, args ...string) *exec.Cmd {
	return command(ctx, tool, args...)
}

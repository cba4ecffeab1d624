package jail

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// elf begins a program that needs no other one to be run.
const elf = "\x7fELF"

// oldestGit is the first version of git that knows of all the checks that are asked of it,
// and is kept from the configuration of whoever runs it.
var oldestGit = [2]int{2, 32}

// Find returns the machine's git: the first in path that is a program itself, and no
// script around one, which could not run behind these walls.
func Find(ctx context.Context, path string) (string, error) {
	for _, dir := range append(filepath.SplitList(path), "/usr/bin", "/usr/local/bin", "/bin") {
		name, err := filepath.EvalSymlinks(filepath.Join(dir, "git"))
		if err != nil || !filepath.IsAbs(name) || unix.Access(name, unix.X_OK) != nil {
			continue
		}
		if begins(name, elf) {
			return name, checkVersion(ctx, name)
		}
	}
	return "", sandbox.Errorf(sandbox.Unsupported, "this machine has no git, by which commits are taken").
		WithHint("install git; carboy apply takes the files without it")
}

func begins(name, with string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	head := make([]byte, len(with))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == with
}

// checkVersion refuses a git that would not look at objects as strictly as it is told.
func checkVersion(ctx context.Context, git string) error {
	const most = 4 << 10
	out := &Bounded{Limit: most}
	cmd := exec.CommandContext(ctx, git, "version")
	cmd.Env = Environment("")
	if err := Finish(ctx, cmd, nil, out); err != nil {
		return sandbox.Errorf(sandbox.Unsupported, "%s does not say its version: %w", shell.Word(git), err)
	}
	version := strings.TrimSpace(strings.TrimPrefix(out.String(), "git version "))
	var v [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &v[0], &v[1]); err != nil {
		return sandbox.Errorf(sandbox.Unsupported, "%s has a version that can't be read: %.80q", shell.Word(git), version)
	}
	if slices.Compare(v[:], oldestGit[:]) < 0 {
		return sandbox.Errorf(sandbox.Unsupported, "%s is git %.80s, which is too old to check what a sandbox made: that takes %d.%d", shell.Word(git), version, oldestGit[0], oldestGit[1]).
			WithHint("install a newer git; carboy apply takes the files without it")
	}
	return nil
}

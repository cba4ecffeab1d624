package repository

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	gitPatience = 5 * time.Second
	maxIdentity = 256 // bytes of a name
)

// identify asks git for the user's name and e-mail. Without a git there are none. What
// is asked reads configuration and runs nothing, whatever the repository has in it. What
// makes git wait, such as a pipe that is to be included, costs gitPatience and the name.
func (r *Repository) identify(ctx context.Context) {
	r.Name, r.Email = identity(ctx, "-C", r.asked(), "config")
}

// Identity is the user's name and e-mail, as git's configuration of the user has them.
func Identity(ctx context.Context) (name, email string) {
	return identity(ctx, "config", "--global", "--includes")
}

func identity(ctx context.Context, config ...string) (name, email string) {
	git, err := exec.LookPath("git")
	if err != nil {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, git, slices.Concat([]string{"--no-pager"}, config, []string{"-z", "--get-regexp", `^user\.(name|email)$`})...)
	cmd.Env = gitEnv(os.Environ())
	var out bounded
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, io.Discard, time.Second
	if err := cmd.Run(); err != nil {
		return "", "" // it knows none
	}
	for entry := range bytes.SplitSeq(out.Bytes(), []byte{0}) {
		key, value, _ := strings.Cut(string(entry), "\n")
		if value = strings.TrimSpace(value); !nameable(value) {
			value = ""
		}
		switch key { // the last one counts
		case "user.name":
			name = value
		case "user.email":
			email = value
		}
	}
	return name, email
}

// asked is where git is asked: outside of a repository whose configuration is no small file.
func (r *Repository) asked() string {
	for _, file := range []string{filepath.Join(r.CommonDir, "config"), filepath.Join(r.GitDir, "config.worktree")} {
		if _, err := os.Stat(file); r.Is() && err == nil && readText(file) == "" {
			return "/"
		}
	}
	return r.Top
}

// nameable reports whether s can be somebody's name. What a command would take for one of
// its options is none.
func nameable(s string) bool {
	return !strings.HasPrefix(s, "-") && len(s) <= maxIdentity && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// gitEnv leaves out of env what would have git look at another repository.
func gitEnv(env []string) []string {
	kept := []string{"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"}
	for _, e := range env {
		if !strings.HasPrefix(e, "GIT_") || strings.HasPrefix(e, "GIT_CONFIG") && !strings.HasPrefix(e, "GIT_CONFIG=") {
			kept = append(kept, e)
		}
	}
	return kept
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	const most = 64 << 10
	if room := most - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

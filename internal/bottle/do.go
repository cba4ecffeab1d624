package bottle

import (
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// do does a step that is not the provider's.
func (w *work) do(ctx context.Context, st Step) error {
	switch st.Do {
	case DoCA:
		return w.trusted(ctx)
	case DoRemotes:
		return w.remotes(ctx)
	case DoGit:
		return w.git(ctx, st)
	case DoPrompt:
		return w.pr.WriteFile(ctx, provider.PlannedFile{Path: PromptFile(w.in.Home), Mode: 0o644, Content: w.s.Prompt, Error: "the prompt can't be written"})
	case DoSkill:
		return w.skill(ctx, st.What)
	case DoWorkspace:
		return w.workspace(ctx)
	case DoCopy:
		c := &w.s.Copies[st.index]
		f, size, err := w.open(c.Source)
		if err != nil {
			return because("the program can't be copied in", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		return w.pr.Copy(ctx, provider.Entry{Path: c.Target, Mode: 0o755, Source: f, Size: size})
	}
	return w.write(ctx, st.index)
}

// open opens a plain file of the host's.
func (w *work) open(name string) (io.ReadCloser, int64, error) {
	f, err := w.Open(name)
	if err != nil {
		return nil, 0, errNoFile(name, err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrInvalid
	}
	if err != nil {
		_ = f.Close() // it was only read
		return nil, 0, errNoFile(name, err)
	}
	return f, fi.Size(), nil
}

func because(text string, err error) error {
	return sandbox.Errorf(sandbox.KindOf(err), "%s: %w", text, err)
}

// git sets one field of git's own configuration. Where there is no git there is nothing that
// would look for it.
func (w *work) git(ctx context.Context, st Step) error {
	text := "git's " + st.What + " can't be set"
	r, err := w.pr.Run(ctx, st.Argv, maxSaid)
	switch {
	case err != nil:
		return because(text, err)
	case r.Missing:
		w.said = "there is no git inside"
		return nil
	case r.Code != 0:
		return provider.Failed(text, r)
	}
	return nil
}

// remotesFile has what stands for remotes, below the home: the user's own configuration takes
// it in, and stays as it is.
const remotesFile = ".config/carboy/remotes.gitconfig"

func (w *work) remotes(ctx context.Context) error {
	const text = "git can't be told what stands for its remotes"
	at := path.Join(w.in.Home, remotesFile)
	if err := w.pr.Must(ctx, []string{"mkdir", "-p", "--", path.Dir(at)}, text); err != nil {
		return err
	}
	if err := w.pr.WriteFile(ctx, provider.PlannedFile{Path: at, Mode: 0o644, Content: w.s.GitConfig, Error: text}); err != nil {
		return err
	}
	return w.pr.Must(ctx, []string{"git", "config", "--global", "--replace-all", "include.path", at, "^" + at + "$"}, text)
}

// replaceDir makes a directory empty, though an agent left something there that can't be entered.
const replaceDir = `rm -rf -- "$1" 2>/dev/null || { chmod -R u+rwx -- "$1" && rm -rf -- "$1"; } && mkdir -p -- "$1"`

// skill brings a skill as the daemon keeps it. What was there of it goes: a file that the skill
// has no longer would go on being read.
func (w *work) skill(ctx context.Context, name string) error {
	text := "the skill " + name + " can't be brought"
	dir, err := w.p.SkillsDir(&w.in)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%s: %w", text, err)
	}
	at := path.Join(dir, name)
	if err := w.pr.Must(ctx, []string{"sh", "-c", replaceDir, "sh", at}, text); err != nil {
		return err
	}
	err = w.guest.put(ctx, at, false, func(to io.Writer) error { return w.Skill(ctx, name, to) })
	if err != nil {
		return because(text, err)
	}
	return nil
}

// gitSetup tells git inside, as the sandbox's user, that the workspace is to be worked in
// whoever owns it. Inodes, owners and times of change are others in a view than in the index:
// without a word git would read each file of a large tree at its first look. Then it says the
// commit that is checked out. Where there is no git, it has nothing to do.
const gitSetup = `command -v git >/dev/null 2>&1 || exit 0
git config --global --replace-all safe.directory '*' || exit
git config --global core.checkStat minimal && git config --global core.trustctime false || exit
git -C "$1" -c core.fsmonitor=false -c core.hooksPath=/dev/null rev-parse --verify -q HEAD || true`

// workspace makes git ready in the workspace.
func (w *work) workspace(ctx context.Context) error {
	if w.s.Work.Git != "" {
		if err := w.giveGit(ctx); err != nil {
			return err
		}
	}
	const text = "git can't be made ready inside"
	r, err := w.pr.Run(ctx, []string{"sh", "-c", gitSetup, "sh", repository.Inside}, maxSaid)
	switch {
	case err != nil:
		return because(text, err)
	case r.Missing: // an image without a shell has no git
		return nil
	case r.Code != 0:
		return provider.Failed(text, r)
	}
	if head := strings.TrimSpace(string(r.Stdout)); isCommit(head) {
		w.is.Base = head
	}
	return nil
}

func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && !strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
}

// giveGit puts a git directory of the sandbox's own in the place of a .git that names one outside
// the tree. The tree must be a view: nothing of the user's is replaced.
func (w *work) giveGit(ctx context.Context) error {
	const text = "the workspace can't be given a git directory"
	ws := w.sb.Spec.Workspace
	if ws.Mode != sandbox.WorkspaceCOW {
		return sandbox.Errorf(sandbox.Unsupported, "%s: its repository lies elsewhere, and git works with it in a view alone", ws.Source.Path).
			WithHint("leave out :rw and :ro")
	}
	f, size, err := w.open(w.s.Work.Git)
	if err != nil {
		return because(text, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	at := path.Join(repository.Inside, ".git")
	if err := w.pr.Must(ctx, []string{"rm", "-rf", "--", at}, text); err != nil {
		return err
	}
	err = w.guest.put(ctx, at, true, func(to io.Writer) error {
		_, err := io.Copy(to, io.LimitReader(f, size)) // of what has no size, such as /proc's, nothing
		return err
	})
	if err != nil {
		return because(text, err)
	}
	return nil
}

// write writes a file of the agent's into the home.
func (w *work) write(ctx context.Context, i int) error {
	f := &w.s.Files[i]
	text := f.Path + " can't be written"
	below, ok := strings.CutPrefix(f.Path, "~/")
	mode, err := strconv.ParseUint(orElse(f.Mode, "0644"), 8, 9)
	if !ok || below == "" || path.Clean("/"+below) != "/"+below || err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%.256q can't be written: it needs a path below ~/ and an octal mode", f.Path)
	}
	at := path.Join(w.in.Home, below)
	if dir := path.Dir(at); dir != w.in.Home {
		if err := w.pr.Must(ctx, []string{"mkdir", "-p", "--", dir}, text); err != nil {
			return err
		}
	}
	return w.pr.WriteFile(ctx, provider.PlannedFile{Path: at, Mode: fs.FileMode(mode), Content: f.Content, Error: text})
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// start starts the agent, which goes on by itself.
func (w *work) start(ctx context.Context) error {
	s := w.s.Start
	cmd := &guestv1.Command{Argv: w.is.Command, Cwd: w.is.Dir, Tag: Tag, Env: s.Env}
	if s.Terminal {
		cmd.Terminal = &guestv1.Terminal{Cols: s.Cols, Rows: s.Rows}
	}
	id := "agent-" + rand.Text()
	if err := w.guest.agent.Begin(ctx, id, cmd); err != nil {
		return explained(err)
	}
	exit, err := w.guest.agent.Ended(ctx, id)
	if err != nil {
		return explained(err)
	}
	if exit.GetReason() == guestv1.Reason_REASON_NOT_STARTED {
		return sandbox.Errorf(sandbox.Invalid, "%s can't be started: %s", w.is.Provider, term.Escape(exit.GetError()))
	}
	return nil
}

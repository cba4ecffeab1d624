package quarantine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Repository is the user's own, into which commits are taken.
type Repository struct {
	Dir    string // its tree, or itself
	Common string // where its objects and refs are
	Format pack.Format
	Refs   map[string]string // object by name, as they were when it was opened
	Head   string            // the commit that is checked out; "" for none

	git     string
	gitDir  string
	objects []string // directories: its own first, then those that it borrows from
	shallow string   // the commits whose parents it lacks, by git's file; "" for none
	mode    fs.FileMode
}

const (
	maxAnswer   = 64 << 20 // bytes that git says of the user's own repository
	maxBorrowed = 64       // directories that it borrows from
	maxSmall    = 16 << 20 // bytes of a file of the repository's own that is read here
)

// Open opens the repository that the directory dir is of. Git is the machine's, from
// jail.Find; it obeys the repository's configuration as far as that says what the repository
// is, and runs nothing that it names. It does not even that where git itself would refuse
// it: the repository is somebody else's, and the caller's own configuration has no
// safe.directory for it.
func Open(ctx context.Context, git, dir string) (*Repository, error) {
	r := &Repository{Dir: dir, git: git}
	out, err := r.own(ctx, nil, "rev-parse", "--absolute-git-dir", "--git-common-dir", "--show-object-format")
	if g, ok := errors.AsType[*jail.Error](err); ok {
		if strings.Contains(g.Says, "dubious ownership") || strings.Contains(g.Says, "unsafe repository") {
			return nil, sandbox.Errorf(sandbox.Denied, "%s is a repository of somebody else's, whose configuration git would obey", shell.Word(dir)).
				WithHint("fetch as its owner; or, if you trust them: git config --global --add safe.directory %s", shell.Word(dir))
		}
		return nil, sandbox.Errorf(sandbox.Conflict, "%s: no repository that commits could be taken into: %s", shell.Word(dir), g.Says).
			WithHint("carboy apply takes files without one")
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != 3 {
		return nil, sandbox.Errorf(sandbox.Unsupported, "%s: git does not say where its repository is", shell.Word(dir))
	}
	r.gitDir, r.Common = lines[0], lines[1]
	if !filepath.IsAbs(r.Common) {
		r.Common = filepath.Join(dir, r.Common)
	}
	if r.Format = pack.Format(lines[2]); r.Format != pack.SHA1 && r.Format != pack.SHA256 {
		return nil, sandbox.Errorf(sandbox.Unsupported, "%s: a repository of the format %q, where sha1 and sha256 are known", shell.Word(dir), lines[2])
	}
	if err := r.look(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// look reads what is to be known before anything is taken.
func (r *Repository) look(ctx context.Context) (err error) {
	if r.objects, err = borrowed(filepath.Join(r.Common, "objects")); err != nil {
		return err
	}
	if r.shallow, err = readSmall(r.Common, "shallow"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := r.checkWhole(ctx); err != nil { // before a git that would read objects
		return err
	}
	if err := r.checkPlace(); err != nil {
		return err
	}
	if r.mode, err = r.sharing(ctx); err != nil {
		return err
	}
	if r.Refs, err = r.refs(ctx); err != nil {
		return err
	}
	head, err := r.own(ctx, nil, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if g, ok := errors.AsType[*jail.Error](err); ok && g.Silent {
		return nil // no commit yet
	}
	r.Head = strings.TrimSpace(string(head))
	return err
}

// checkWhole refuses a partial clone: it lacks objects, which git would fetch by what the
// repository's configuration says, in the middle of whatever it does.
func (r *Repository) checkWhole(ctx context.Context) error {
	out, err := r.own(ctx, nil, "config", "--name-only", "--get-regexp", `^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$`)
	if g, ok := errors.AsType[*jail.Error](err); err != nil && (!ok || !g.Silent) {
		return unread(err)
	}
	partial := len(out) > 0
	for _, dir := range r.objects {
		packs, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "pack", "*.promisor"))
		partial = partial || len(packs) > 0
	}
	if !partial {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported, "%s is a partial clone: it lacks objects, so nobody can say whether commits for it are whole", shell.Word(r.Dir)).
		WithHint("carboy apply takes files; or clone it without --filter")
}

func escapeGlob(p string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(p)
}

// checkPlace refuses places for refs to which a link leads, at whatever part of their path:
// git would follow it, and write elsewhere. So it is with a reflog, which git goes on with.
func (r *Repository) checkPlace(refs ...string) error {
	common, err := openDir(r.Common)
	if err != nil {
		return err
	}
	defer func() { _ = common.Close() }() // a directory
	dirs := []string{"refs/carboy", "logs/refs/carboy"}
	for _, ref := range refs {
		dirs = append(dirs, path.Dir(ref), "logs/"+ref)
	}
	for _, name := range dirs {
		dir, err := common.OpenDir(name)
		if link, ok := errors.AsType[*beneath.LinkError](err); ok {
			return sandbox.Errorf(sandbox.Conflict, "%s is a link: refs are put into directories alone", shell.Word(link.Path))
		}
		if err == nil { // it is there, or git says why it can't be
			_ = dir.Close() // a directory
		}
	}
	return nil
}

// openDir opens a directory of the repository's, which a user may have put elsewhere.
func openDir(name string) (*beneath.Dir, error) {
	f, err := os.OpenFile(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return beneath.In(f), nil
}

// readSmall reads a file in a directory of the repository's. What is none, such as a pipe that
// nobody writes to, is an error: it would be waited for until for ever.
func readSmall(dir, name string) (string, error) {
	d, err := openDir(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = d.Close() }() // a directory
	text, err := d.ReadFile(name, maxSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", sandbox.Errorf(sandbox.Conflict, "the repository has a file that is not read: %w", err)
	}
	return string(text), err
}

// sharing is the mode of files that a repository's configuration asks for.
func (r *Repository) sharing(ctx context.Context) (fs.FileMode, error) {
	const alone = 0o444
	out, err := r.own(ctx, nil, "config", "--get", "core.sharedRepository")
	if g, ok := errors.AsType[*jail.Error](err); ok && g.Silent {
		return alone, nil
	}
	if err != nil {
		return 0, err
	}
	switch s := strings.TrimSpace(string(out)); s {
	case "group", "true", "1":
		return 0o440 | shared, nil
	case "all", "world", "everybody", "2":
		return 0o444 | shared, nil
	default:
		if n, err := strconv.ParseUint(s, 8, 32); err == nil && n > 0o7 && n <= 0o777 {
			return fs.FileMode(n)&0o444 | 0o400 | shared, nil
		}
		return alone, nil
	}
}

// shared marks a mode that holds whatever the umask is.
const shared fs.FileMode = fs.ModeSetgid

// refs reads all refs.
func (r *Repository) refs(ctx context.Context) (map[string]string, error) {
	out, err := r.own(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if id, name, ok := strings.Cut(lines.Text(), " "); ok && r.isID(id) {
			refs[name] = id
		}
	}
	return refs, lines.Err()
}

// isID reports whether s is an object's whole name.
func (r *Repository) isID(s string) bool {
	return len(s) == 2*r.Format.Size() && strings.Trim(s, "0123456789abcdef") == ""
}

// own runs git on the user's repository, with the user's rights. Nothing that a sandbox
// said is among its arguments but the names of objects and of refs that were checked.
func (r *Repository) own(ctx context.Context, in []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, r.git, append(jail.Quiet(), args...)...)
	cmd.Dir = r.Dir
	cmd.Env = jail.Environment(r.gitDir)
	if r.gitDir == "" { // it is to be found
		cmd.Env = finding()
	}
	out := &jail.Bounded{Limit: maxAnswer}
	err := jail.Finish(ctx, cmd, bytes.NewReader(in), out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "%s: it is not there any more", shell.Word(r.Dir))
	}
	return out.Bytes(), err
}

// finding is the environment by which a repository is found. Whether it is one that the
// caller trusts, git knows by who it is of, and by the caller's own configuration.
func finding() (env []string) {
	for _, v := range jail.Environment("") {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GIT_DIR", "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL":
		default:
			env = append(env, v)
		}
	}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "SUDO_UID"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// borrowed returns a directory of objects and those that it borrows from, however far.
func borrowed(objects string) ([]string, error) {
	all := []string{objects}
	for i := 0; i < len(all); i++ {
		text, err := readSmall(all[i], "info/alternates")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case line == "" || line[0] == '#':
				continue
			case line[0] == '"':
				return nil, sandbox.Errorf(sandbox.Unsupported, "%s: a quoted path of objects that it borrows, which is not read here", shell.Word(all[i]))
			case !filepath.IsAbs(line):
				line = filepath.Join(all[i], line)
			}
			if all = append(all, line); len(all) > maxBorrowed {
				return nil, sandbox.Errorf(sandbox.Unsupported, "%s: it borrows objects from more than %d places", shell.Word(objects), maxBorrowed)
			}
		}
	}
	return all, nil
}

package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Result is how a command inside ended, with what it wrote, up to a bound.
type Result struct {
	Code   int
	Lost   bool // it ended by 137 and not for want of memory or time: it may be tried again
	Stdout []byte
	Stderr []byte
}

// Entry is a file that is written inside. Where Source is set, it is the content, of
// Size bytes.
type Entry struct {
	Path    string
	Mode    int64
	Content []byte
	Source  io.Reader
	Size    int64
}

// Guest is a running sandbox, as its user.
type Guest interface {
	// Run runs a command and keeps at most so many bytes of each of its streams.
	Run(ctx context.Context, argv []string, most int) (*Result, error)
	// Write writes what is given, in its order, and says what could not be written.
	Write(ctx context.Context, entries []Entry) error
}

// Bounds of what comes out of a sandbox.
const (
	maxEnviron = 1 << 20
	maxThere   = 8 << 20 // of a file that is merged into
	maxSaid    = 4 << 10 // of what a command says that fails
)

// Provisioner does in a sandbox what a plan says.
type Provisioner struct {
	Guest Guest
	// Mended, if any, is told of a file's place at which something else was, such as a
	// directory: an agent may leave that in a home that is kept.
	Mended func(path string)
}

// Placeholders are what stands inside for the secrets of those names.
func (pr *Provisioner) Placeholders(ctx context.Context, names []string) (map[string]string, error) {
	out := map[string]string{}
	if len(names) == 0 {
		return out, nil
	}
	r, err := pr.run(ctx, []string{"cat", "/proc/self/environ"}, maxEnviron)
	if err != nil {
		return nil, err
	}
	for pair := range strings.SplitSeq(string(r.Stdout), "\x00") {
		k, v, _ := strings.Cut(pair, "=")
		if slices.Contains(names, k) && isPlaceholder(v) {
			out[k] = v
		}
	}
	for _, n := range names {
		if out[n] == "" {
			return nil, sandbox.Errorf(sandbox.Internal, "secret %s: nothing stands for it inside", n)
		}
	}
	return out, nil
}

// isPlaceholder reports whether s may be one: letters, digits and _, after carboy_secret_.
func isPlaceholder(s string) bool {
	return strings.HasPrefix(s, "carboy_secret_") && len(s) < 200 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	})
}

// Apply does what a plan says: directories, what is to be done before files, files, and
// what must hold then. It may be done again: each step leads to the same.
func (pr *Provisioner) Apply(ctx context.Context, plan *Plan) error {
	for _, d := range plan.Dirs {
		// A directory that is there stays, with what is in it.
		script := []string{"sh", "-c", `mkdir -p -- "$1" && chmod "$2" -- "$1"`, "sh", d.Path, fmt.Sprintf("%04o", d.Mode)}
		if err := pr.must(ctx, script, d.Error); err != nil {
			return err
		}
	}
	for _, c := range plan.PreCopy {
		if err := pr.must(ctx, c.Argv, c.Error); err != nil {
			return err
		}
	}
	if err := pr.files(ctx, plan.Files); err != nil {
		return err
	}
	for _, c := range plan.Verify {
		if err := pr.must(ctx, c.Argv, c.Error); err != nil {
			return err
		}
	}
	return nil
}

// clear moves aside what is at a file's place and is neither a file nor a link, which the
// file would replace, and says the number of each. So many are moved aside, and no more:
// who left the first left the others.
const clear = `i=0
for f; do
	[ -L "$f" ] || [ -f "$f" ] || [ ! -e "$f" ] || for n in 1 2 3 4 5 6 7 8 9 0; do
		[ $n != 0 ] || { echo "what is at $f is no file, and more than enough was moved aside" >&2; exit 1; }
		[ -e "$f.was-$n" ] || [ -L "$f.was-$n" ] && continue
		mv -- "$f" "$f.was-$n" || exit
		echo $i
		break
	done
	i=$((i + 1))
done`

// clear makes way for files.
func (pr *Provisioner) clear(ctx context.Context, files []PlannedFile) error {
	if len(files) == 0 {
		return nil
	}
	argv := []string{"sh", "-c", clear, "sh"}
	for _, f := range files {
		argv = append(argv, f.Path)
	}
	const text = "files can't be written"
	r, err := pr.run(ctx, argv, maxSaid)
	switch {
	case err != nil:
		return because(text, err)
	case r.Code != 0:
		return failed(text, r)
	case pr.Mended == nil:
		return nil
	}
	for line := range strings.Lines(string(r.Stdout)) {
		if i, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && i >= 0 && i < len(files) {
			pr.Mended(files[i].Path)
		}
	}
	return nil
}

// readFile writes a file, as much of it as may be, and waits for no pipe that is there; for one that
// takes the place of a file meanwhile, no longer than a step may take.
const readFile = `[ -f "$1" ] && exec head -c "$2" -- "$1"`

func (pr *Provisioner) files(ctx context.Context, files []PlannedFile) error {
	if err := pr.clear(ctx, files); err != nil {
		return err
	}
	for _, f := range files {
		content := f.Content
		if f.Merge {
			r, err := pr.run(ctx, []string{"sh", "-c", readFile, "sh", f.Path, strconv.Itoa(maxThere)}, maxThere)
			if err != nil {
				return err
			}
			if r.Code == 0 && len(r.Stdout) < maxThere {
				if content, err = Merged(r.Stdout, f.Content); err != nil {
					return sandbox.Errorf(sandbox.Internal, "%s: %w", f.Error, err)
				}
			}
		}
		e := Entry{Path: f.Path, Mode: int64(f.Mode.Perm()), Content: []byte(content)}
		if err := pr.Guest.Write(ctx, []Entry{e}); err != nil {
			return because(f.Error, err)
		}
	}
	return nil
}

// Copy writes files of this machine's into the sandbox.
func (pr *Provisioner) Copy(ctx context.Context, list []Entry) error {
	for _, e := range list {
		if err := pr.must(ctx, []string{"mkdir", "-p", "--", path.Dir(e.Path)}, "the program can't be copied in"); err != nil {
			return err
		}
		if err := pr.Guest.Write(ctx, []Entry{e}); err != nil {
			return because("the program can't be copied in", err)
		}
	}
	return nil
}

// must runs a command that has to succeed; what is said where it does not begins with text.
func (pr *Provisioner) must(ctx context.Context, argv []string, text string) error {
	r, err := pr.run(ctx, argv, maxSaid)
	if err != nil {
		return because(text, err)
	}
	if r.Code != 0 {
		return failed(text, r)
	}
	return nil
}

// run runs a command, and once more where it was lost: all that is done here may be done twice.
func (pr *Provisioner) run(ctx context.Context, argv []string, most int) (*Result, error) {
	r, err := pr.Guest.Run(ctx, argv, most)
	if err == nil && r.Lost {
		r, err = pr.Guest.Run(ctx, argv, most)
	}
	return r, err
}

// because keeps the kind and the hint of an error, and says first what was meant to be done.
func because(text string, err error) error {
	e := sandbox.Errorf(sandbox.KindOf(err), "%s: %w", text, err)
	if cause, ok := errors.AsType[*sandbox.Error](err); ok && cause.Hint != "" {
		return e.WithHint("%s", cause.Hint)
	}
	return e
}

// failed says what a command that failed has said last.
func failed(text string, r *Result) error {
	said := strings.TrimSpace(string(r.Stderr))
	if said == "" {
		said = strings.TrimSpace(string(r.Stdout))
	}
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	if said == "" {
		return sandbox.Errorf(sandbox.Invalid, "%s: exit code %d", text, r.Code)
	}
	return sandbox.Errorf(sandbox.Invalid, "%s: exit code %d: %s", text, r.Code, term.Escape(said))
}

// Names are the secrets of a grant.
func (g *Grant) Names() []string {
	names := map[string]bool{}
	for _, s := range g.Secrets {
		names[s.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

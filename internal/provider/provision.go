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
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Result is how a command inside ended, with what it wrote, up to a bound.
type Result struct {
	Code    int
	Lost    bool // it ended by 137 and not for want of memory or time: it may be tried again
	Missing bool // it could not be started; Stderr says why
	Stdout  []byte
	Stderr  []byte
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
	// Write writes a file, or says why it could not be written.
	Write(ctx context.Context, e Entry) error
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
	// Step, if any, does each step, which it is told in a word and by what it is about.
	Step func(ctx context.Context, do, what string, f func(context.Context) error) error
	// Pause is the time before what was lost is tried again.
	Pause func(context.Context) error
}

// lostPause is how long is waited before a command that was lost is run again.
const lostPause = time.Second

// Pause waits for lostPause.
func Pause(ctx context.Context) error {
	t := time.NewTimer(lostPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (pr *Provisioner) step(ctx context.Context, do, what string, f func(context.Context) error) error {
	if pr.Step == nil {
		return f(ctx)
	}
	return pr.Step(ctx, do, what, f)
}

// Placeholders are what stands inside for the secrets of those names.
func (pr *Provisioner) Placeholders(ctx context.Context, names []string) (map[string]string, error) {
	out := map[string]string{}
	if len(names) == 0 {
		return out, nil
	}
	r, err := pr.Run(ctx, []string{"cat", "/proc/self/environ"}, maxEnviron)
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
		if err := pr.command(ctx, "dir", d.Path, script, d.Error); err != nil {
			return err
		}
	}
	for _, c := range plan.PreCopy {
		if err := pr.command(ctx, "pre_copy", strings.Join(c.Argv, " "), c.Argv, c.Error); err != nil {
			return err
		}
	}
	for _, f := range plan.Files {
		err := pr.step(ctx, "file", f.Path, func(ctx context.Context) error { return pr.WriteFile(ctx, f) })
		if err != nil {
			return err
		}
	}
	for _, c := range plan.Verify {
		if err := pr.command(ctx, "verify", strings.Join(c.Argv, " "), c.Argv, c.Error); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command that has to succeed as a step.
func (pr *Provisioner) command(ctx context.Context, do, what string, argv []string, text string) error {
	return pr.step(ctx, do, what, func(ctx context.Context) error { return pr.Must(ctx, argv, text) })
}

// ready makes way for the file $1: what is there and is neither a file nor a link, which the file
// would replace, is moved aside, and its first line says so. So many are moved aside, and no more: who left the
// first left the others. Then it writes the first $2 bytes of a file that is there, if that is not 0, and
// waits for no pipe; for one that takes the place of a file meanwhile, no longer than a step may take.
const ready = `did=none
[ -L "$1" ] || [ -f "$1" ] || [ ! -e "$1" ] || for n in 1 2 3 4 5 6 7 8 9 0; do
	[ $n != 0 ] || { echo "what is at $1 is no file, and more than enough was moved aside" >&2; exit 1; }
	[ -e "$1.was-$n" ] || [ -L "$1.was-$n" ] && continue
	mv -- "$1" "$1.was-$n" || exit
	did=moved
	break
done
echo $did
[ "$2" = 0 ] || [ ! -f "$1" ] || exec head -c "$2" -- "$1"`

// merging is held for what takes many times the memory of a file that a guest has made.
var merging sync.Mutex

// WriteFile writes a file, whatever is there.
func (pr *Provisioner) WriteFile(ctx context.Context, f PlannedFile) error {
	most := 0
	if f.Merge {
		most = maxThere
	}
	r, err := pr.Run(ctx, []string{"sh", "-c", ready, "sh", f.Path, strconv.Itoa(most)}, most+maxSaid)
	if err != nil {
		return because(f.Error, err)
	}
	did, there, ok := strings.Cut(string(r.Stdout), "\n")
	if r.Code != 0 && !ok {
		return Failed(f.Error, r)
	}
	if did == "moved" && pr.Mended != nil {
		pr.Mended(f.Path)
	}
	content := f.Content
	if f.Merge && r.Code == 0 && len(there) < maxThere {
		merging.Lock()
		content, err = Merged([]byte(there), f.Content)
		merging.Unlock()
		if err != nil {
			return sandbox.Errorf(sandbox.Internal, "%s: %w", f.Error, err)
		}
	}
	e := Entry{Path: f.Path, Mode: int64(f.Mode.Perm()), Content: []byte(content)}
	if err := pr.Guest.Write(ctx, e); err != nil {
		return because(f.Error, err)
	}
	return nil
}

// Copy writes a file of this machine's into the sandbox.
func (pr *Provisioner) Copy(ctx context.Context, e Entry) error {
	const text = "the program can't be copied in"
	if err := pr.Must(ctx, []string{"mkdir", "-p", "--", path.Dir(e.Path)}, text); err != nil {
		return err
	}
	if err := pr.Guest.Write(ctx, e); err != nil {
		return because(text, err)
	}
	return nil
}

// Must runs a command that has to succeed; what is said where it does not begins with text.
func (pr *Provisioner) Must(ctx context.Context, argv []string, text string) error {
	r, err := pr.Run(ctx, argv, maxSaid)
	if err != nil {
		return because(text, err)
	}
	if r.Code != 0 {
		return Failed(text, r)
	}
	return nil
}

// Run runs a command, and once more where it was lost: all that is done here may be done twice.
func (pr *Provisioner) Run(ctx context.Context, argv []string, most int) (*Result, error) {
	r, err := pr.Guest.Run(ctx, argv, most)
	if err != nil || !r.Lost {
		return r, err
	}
	pause := pr.Pause
	if pause == nil {
		pause = Pause
	}
	if err := pause(ctx); err != nil {
		return nil, err
	}
	return pr.Guest.Run(ctx, argv, most)
}

// because keeps the kind and the hint of an error, and says first what was meant to be done.
func because(text string, err error) error {
	e := sandbox.Errorf(sandbox.KindOf(err), "%s: %w", text, err)
	if cause, ok := errors.AsType[*sandbox.Error](err); ok && cause.Hint != "" {
		return e.WithHint("%s", cause.Hint)
	}
	return e
}

// Failed says what a command that failed has said last.
func Failed(text string, r *Result) error {
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

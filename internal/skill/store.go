// Package skill keeps packages of instructions and files that agents are
// taught from, and brings them into sandboxes that run, and back.
//
// A package is a directory with a SKILL.md: YAML between two lines of three
// dashes, then instructions. A Store has them below one directory, apart for
// each namespace, and reaches them through open directories only: no link
// leads out, and no path of a caller is used as text. What it takes in, be it
// an archive, a directory or what a sandbox made of a package, is bounded and
// has files and directories alone; links, devices, modes and owners of others
// never get in. A change is whole or not there at all, also where the daemon
// is killed in the middle of it.
//
// Errors are *sandbox.Errors, whose texts LangBot's users know.
package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

const (
	tenants = "tenants" // below the root: each namespace has a directory there
	ownDir  = ".carboy" // in each namespace: what is ours and no package
	maxName = 64        // characters of a skill's name
)

// Store keeps the packages of one namespace. It is safe for concurrent use,
// also by several daemons that share the directory.
type Store struct {
	root string // of all namespaces: absolute, without links
	ns   string // "": the root itself
	keep *shared
}

// shared is what all namespaces of one directory have in common.
type shared struct {
	given string // the root as it was configured: absolute
	log   *slog.Logger
	turns sync.Map // namespace -> chan struct{} of one place: who changes something
	sums  sums
}

// Open returns the store below the directory root, which is made where it is
// missing, and undoes what a daemon that was killed had left half done.
func Open(root string, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "skills root %q: it can't be made absolute", root)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "skills root %s: %w", abs, plain(err)).
			WithHint("set box.skills_root to a directory that can be written")
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "skills root %s: %w", abs, plain(err))
	}
	s := &Store{root: real, keep: &shared{given: abs, log: log}}
	return s, s.sweepAll()
}

// Scoped returns the store of one namespace, whose packages no other sees;
// "" is the store that Open returned.
func (s *Store) Scoped(ns string) (*Store, error) {
	ns = strings.TrimSpace(ns)
	switch {
	case ns == "":
		return &Store{root: s.root, keep: s.keep}, nil
	case strings.HasPrefix(ns, "."), len(ns) > 128, strings.ContainsFunc(ns, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
	}):
		return nil, sandbox.Errorf(sandbox.Invalid, "invalid namespace of skills %.128q: use letters, digits, - and _", ns)
	}
	return &Store{root: s.root, ns: ns, keep: s.keep}, nil
}

// Root returns the directory that the namespace's packages are below:
// absolute, without links. It need not be there yet.
func (s *Store) Root() string {
	if s.ns == "" {
		return s.root
	}
	return filepath.Join(s.root, tenants, s.ns)
}

// open opens the namespace's directory, and makes it where it is missing.
func (s *Store) open() (*os.Root, error) {
	base, err := openAll(s.root)
	if err != nil {
		return nil, s.fault("open the skill store", err)
	}
	if s.ns == "" {
		return base, nil
	}
	defer base.Close()
	if err := base.MkdirAll(path.Join(tenants, s.ns), 0o700); err != nil {
		return nil, s.fault("open the skill store", err)
	}
	own, err := openBelow(base, path.Join(tenants, s.ns))
	if err != nil {
		return nil, s.fault("open the skill store", err)
	}
	return own, nil
}

// openAll opens the directory of all namespaces, and makes it where it is
// missing. Its path had no links when the store was opened: guests may be able
// to write to what is above it.
func openAll(root string) (*os.Root, error) {
	top, err := beneath.OpenDir("/")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	if err := top.MkdirAll("."+root, 0o755); err != nil {
		return nil, err
	}
	at, err := top.OpenDir("." + root)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return os.OpenRoot(at.Path())
}

// openBelow opens a directory of a namespace, to which no link leads: guests
// write to packages, and to what is beside one that lies deeper.
func openBelow(dir *os.Root, rel string) (*os.Root, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	at := beneath.In(f)
	defer at.Close()
	below, err := at.OpenDir(rel)
	if err != nil {
		return nil, err
	}
	defer below.Close()
	return os.OpenRoot(below.Path())
}

// reserved reports whether a name at the top of the namespace is ours.
func (s *Store) reserved(name string) bool {
	return name == ownDir || s.ns == "" && name == tenants
}

// within returns where in the namespace an absolute path of the host is: a
// relative path with slashes. It compares text, and what it returns is only
// ever opened below the namespace's own directory.
func (s *Store) within(p string) (string, bool) {
	p = filepath.Clean(p)
	roots := []string{s.Root()}
	if s.ns == "" {
		roots = append(roots, s.keep.given)
	} else {
		roots = append(roots, filepath.Join(s.keep.given, tenants, s.ns))
	}
	for _, root := range roots {
		rel, err := filepath.Rel(root, p)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return rel, true
		}
	}
	return "", false
}

// change calls fn with the namespace's directory open, one at a time, after
// what was left half done was undone.
func (s *Store) change(ctx context.Context, fn func(dir *os.Root) error) error {
	turn, _ := s.keep.turns.LoadOrStore(s.ns, make(chan struct{}, 1))
	select {
	case turn.(chan struct{}) <- struct{}{}:
		defer func() { <-turn.(chan struct{}) }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	unlock, err := lock(dir)
	if err != nil {
		return s.fault("lock the skill store", err)
	}
	defer unlock()
	if err := undo(dir); err != nil {
		return s.fault("undo a change that was cut off", err)
	}
	return fn(dir)
}

// lock keeps other daemons away.
func lock(dir *os.Root) (func(), error) {
	if err := dir.Mkdir(ownDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := dir.OpenFile(path.Join(ownDir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// sweepAll undoes what was left half done, in each namespace.
func (s *Store) sweepAll() error {
	names := []string{""}
	entries, err := os.ReadDir(filepath.Join(s.root, tenants))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.fault("open the skill store", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, ns := range names {
		own, err := s.Scoped(ns)
		if err != nil {
			continue // none of ours
		}
		if _, err := os.Lstat(filepath.Join(own.Root(), ownDir)); err != nil {
			continue
		}
		if err := own.change(context.Background(), func(*os.Root) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// fault makes an error of the host's file system one that a caller may see.
func (s *Store) fault(doing string, err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	s.keep.log.Error("skill store", "doing", doing, "namespace", s.ns, "error", err)
	if err := sandbox.DiskError(err, doing+": the disk of "+s.root); sandbox.KindOf(err) != sandbox.Internal {
		return err
	}
	return &sandbox.Error{Kind: sandbox.Internal, Msg: doing + ": " + plain(err).Error(), Err: err}
}

// plain is an error of the file system without the paths.
func plain(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

func invalid(format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

func notFound(name string) error {
	return sandbox.Errorf(sandbox.NotFound, "Skill \"%.64s\" not found", printable(name))
}

// checkName returns a skill's name without the space around it, or why it is
// none.
func checkName(name string) (string, error) {
	name = strings.TrimSpace(name)
	switch n := utf8.RuneCountInString(name); {
	case name == "":
		return "", invalid("Skill name is required")
	case n > maxName:
		return "", invalid("Skill name cannot exceed %d characters: it has %d", maxName, n)
	case !request.ValidSkillName(name):
		return "", invalid("Skill name can only contain letters, numbers, hyphens and underscores: %.80q is none", name)
	}
	return name, nil
}

// printable is a text of others that may stand in a message.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// describe is a name of a file for a message.
func describe(p string) string { return fmt.Sprintf("%.256s", printable(p)) }

package skill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// takeTimeout is how long a sandbox may take to show a package.
const takeTimeout = time.Minute

// TakeBack takes what a sandbox made of a writable package into the store, if
// it changed. What comes is as bounded as an archive that is uploaded, or as
// the package in the store, where that has more; it has no links and no
// special files, says the same name of itself, and is without .git, .langbot,
// .venv, __pycache__ and node_modules, of which the store keeps its own. What
// is not so is not taken, and a notice says why.
//
// Where the store's package changed too since it was brought, that stays: it
// is a Conflict. The next Bring then keeps the sandbox's copy beside it.
func (s *Store) TakeBack(ctx context.Context, g Guest, b *Brought, p Placed) (Taken, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, ok := b.copies[p.Name]
	if !ok || was.Mode != writable {
		return Taken{}, nil
	}
	stored, skip, err := s.stored(ctx, was.Dir)
	if err != nil {
		return s.refuse(p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	tmp, err := s.spool()
	if err != nil {
		return Taken{}, s.fault("take a skill back", err)
	}
	defer tmp.f.Close()
	lim := guestLimits(stored)
	var content string
	err = g.Fetch(ctx, p.Name, leftOut, func(r io.Reader) (err error) {
		content, err = sumTar(ctx, io.TeeReader(r, tmp), p.Name, lim)
		return err
	})
	switch {
	case errors.Is(err, agent.ErrNotThere):
		b.set(p.Name, nil)
		return Taken{Notices: []string{fmt.Sprintf("skill %s is no longer in the sandbox", p.Name)}}, nil
	case err != nil:
		return s.refuse(p.Name, err)
	case content == was.Sum:
		return Taken{}, nil
	case tmp.err != nil:
		return Taken{}, s.fault("take a skill back", tmp.err)
	}
	t := taking{s: s, name: p.Name, was: was, content: content, tar: tmp.f, lim: lim, skip: skip}
	err = s.change(ctx, func(dir *os.Root) error { return t.store(ctx, dir) })
	if sandbox.IsDiskFull(err) {
		return Taken{}, s.fault("take a skill back", err)
	}
	if err != nil {
		return s.refuse(p.Name, err)
	}
	if t.conflict {
		return Taken{Conflict: true, Notices: []string{fmt.Sprintf(
			"skill %s changed in the sandbox and in the store: the store's stays, and comes with the next command; the sandbox's is then at %s",
			p.Name, inGuest(p.Name+ConflictSuffix))}}, nil
	}
	was.Sum = content
	b.set(p.Name, &was)
	return Taken{Changed: t.changed}, nil
}

// refuse makes what is wrong with a copy a notice, and anything else an
// error.
func (s *Store) refuse(name string, err error) (Taken, error) {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind != sandbox.Internal && e.Kind != sandbox.Unavailable {
		return Taken{Notices: []string{fmt.Sprintf("skill %s: what the sandbox made of it was not taken into the store: %s", name, e.Msg)}}, nil
	}
	return Taken{}, s.guestFault(err)
}

// stored lists the store's package; one that is gone is NotFound.
func (s *Store) stored(ctx context.Context, rel string) ([]node, skipped, error) {
	dir, err := s.open()
	if err != nil {
		return nil, skipped{}, err
	}
	defer dir.Close()
	if entryOf(dir, rel) == "" {
		return nil, skipped{}, sandbox.Errorf(sandbox.NotFound, "the store has no package in %s any more", describe(rel))
	}
	pkg, err := openBelow(dir, rel)
	if err != nil {
		return nil, skipped{}, err
	}
	defer pkg.Close()
	return walk(ctx, pkg)
}

// spool is a file without a name. What can't be written to it is no error until
// it is needed: most that comes has not changed.
type spool struct {
	f   *os.File
	err error
}

func (s *spool) Write(b []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.f.Write(b)
	}
	return len(b), nil
}

func (s *Store) spool() (*spool, error) {
	fd, err := unix.Open(s.root, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return &spool{f: os.NewFile(uintptr(fd), "spool")}, nil
	}
	f, err := os.CreateTemp("", "carboy-skill-")
	if err != nil {
		return nil, err
	}
	return &spool{f: f}, os.Remove(f.Name())
}

// taking is one copy that is taken into the store.
type taking struct {
	s       *Store
	name    string
	was     held
	content string
	tar     *os.File
	lim     limits
	skip    skipped

	changed, conflict bool
}

// store puts the copy in the place of the package, unless that changed.
func (t *taking) store(ctx context.Context, dir *os.Root) error {
	old, err := t.s.at(dir, t.was.Dir)
	if err != nil {
		return err
	}
	pkg, err := openBelow(dir, t.was.Dir)
	if err != nil {
		return err
	}
	defer pkg.Close()
	now, _, skip, err := t.s.content(ctx, pkg, t.was.Dir)
	if err != nil {
		return err
	}
	switch now {
	case t.content:
		return nil
	case t.was.Sum:
	default:
		t.conflict = true
		return nil
	}
	t.skip = skip
	return staged(dir, func(stage string) error {
		fresh := path.Join(stage, "pkg")
		if err := t.unpack(ctx, dir, fresh); err != nil {
			return err
		}
		entry := entryOf(dir, fresh)
		if entry == "" {
			return invalid("it has no SKILL.md any more")
		}
		k, err := load(dir, found{fresh, entry}, t.s.shown(t.was.Dir))
		if err != nil {
			return err
		}
		if k.Name != old.Name {
			return invalid("Renaming skills is not supported: its %s says %q now", k.EntryFile, k.Name)
		}
		if err := carry(dir, t.was.Dir, fresh, t.skip); err != nil {
			return err
		}
		step("taken")
		if err := rename(dir, fresh, t.was.Dir, unix.RENAME_EXCHANGE); err != nil {
			if errors.Is(err, unix.EINVAL) {
				return sandbox.Errorf(sandbox.Unsupported, "the store's file system can't exchange two directories")
			}
			return err
		}
		t.changed = true
		return nil
	})
}

func (t *taking) unpack(ctx context.Context, dir *os.Root, to string) error {
	if err := dir.Mkdir(to, 0o755); err != nil {
		return err
	}
	out, err := openBelow(dir, to)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := t.tar.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return writeGuestTar(ctx, t.tar, t.name, t.lim, out)
}

package quarantine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// partPrefix begins the names of files that are not whole yet, as git's own do: its gc
// removes them, and so does the next fetch.
const partPrefix = "tmp_pack_carboy_"

func (f *fetch) packName() string { return "pack-" + hex.EncodeToString(f.pack.Checksum) }

// keep adds what came to the user's repository: objects, and then refs, all or none.
func (f *fetch) keep(ctx context.Context) error {
	if len(f.take) == 0 && (!f.o.Prune || len(f.gone) == 0) {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := f.checkPlace(f.written()...); err != nil {
		return err
	}
	if f.pack != nil {
		if err := f.keepPack(); err != nil {
			return fmt.Errorf("add the objects to %s: %w", f.objects[0], err)
		}
	}
	// What was begun is brought to its end: it takes no time worth an interruption.
	ctx = context.WithoutCancel(ctx)
	return f.keepRefs(ctx)
}

// written are the refs that are written or removed.
func (f *fetch) written() (refs []string) {
	for _, t := range f.take {
		refs = append(refs, t.ref)
	}
	if f.o.Prune {
		refs = append(refs, f.gone...)
	}
	return refs
}

// keepRefs writes refs, and removes those that are pruned, in one transaction. Where git
// can't have one go and another come at once, because the one is a file where the other
// needs a directory, what is in the way goes before, and is put back if the rest fails.
func (f *fetch) keepRefs(ctx context.Context) error {
	var before, orders, back strings.Builder
	var moved []string
	if f.o.Prune {
		for _, ref := range f.gone {
			to := &orders
			if f.inWay(ref) {
				to = &before
				fmt.Fprintf(&back, "option no-deref\ncreate %s %s\n", ref, f.Refs[ref])
				moved = append(moved, ref+" was "+f.Refs[ref])
			}
			fmt.Fprintf(to, "option no-deref\ndelete %s %s\n", ref, f.Refs[ref])
		}
	}
	for _, t := range f.take {
		old := t.old
		if old == "" {
			old = strings.Repeat("0", 2*f.Format.Size())
		}
		fmt.Fprintf(&orders, "option no-deref\nupdate %s %s %s\n", t.ref, t.id, old)
	}
	if err := f.transact(ctx, before.String()); err != nil {
		return unwritten(err)
	}
	err := f.transact(ctx, orders.String())
	if err == nil {
		return nil
	}
	if berr := f.transact(ctx, back.String()); berr != nil {
		return sandbox.Errorf(sandbox.Conflict, "the refs were not written: %w; and these are gone, and could not be put back: %s: %w", err, strings.Join(moved, ", "), berr).
			WithHint("git update-ref %s", strings.Replace(moved[0], " was ", " ", 1))
	}
	return unwritten(err)
}

// inWay reports whether a ref has to go before one that is taken can come.
func (f *fetch) inWay(ref string) bool {
	return slices.ContainsFunc(f.take, func(t target) bool {
		return strings.HasPrefix(t.ref, ref+"/") || strings.HasPrefix(ref, t.ref+"/")
	})
}

// transact has git do all of the orders, or none.
func (f *fetch) transact(ctx context.Context, orders string) error {
	if orders == "" {
		return nil
	}
	_, err := f.own(ctx, []byte("start\n"+orders+"prepare\ncommit\n"), "update-ref", "--stdin")
	return err
}

// unwritten is the error of refs that are as they were.
func unwritten(err error) error {
	if g, ok := errors.AsType[*jail.Error](err); ok {
		return sandbox.Errorf(sandbox.Conflict, "the refs were not written: %s", g.Says).
			WithHint("where another git works in the repository, try it again")
	}
	return err
}

// keepPack copies the pack and then its index, which makes it one that git sees.
func (f *fetch) keepPack() error {
	objects, err := os.OpenRoot(f.objects[0])
	if err != nil {
		return err
	}
	defer func() { _ = objects.Close() }() // a directory
	if err := objects.Mkdir("pack", 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	to, err := objects.OpenRoot("pack")
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }() // a directory
	sweepParts(to)
	for _, ext := range []string{".pack", ".idx"} {
		if err := f.copyInto(to, f.packName()+ext); err != nil {
			return err
		}
	}
	return nil
}

// sweepParts removes what fetches left that were killed.
func sweepParts(dir *os.Root) {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return // git removes them
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partPrefix) {
			continue
		}
		if part, err := dir.OpenFile(e.Name(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err == nil {
			if unix.Flock(int(part.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				_ = dir.Remove(e.Name()) // or git does
			}
			_ = part.Close() // it was only read
		}
	}
}

// copyInto copies a file of the quarantine's repository into the user's packs. It is there
// whole or not at all.
func (f *fetch) copyInto(dir *os.Root, name string) (err error) {
	if _, err := dir.Lstat(name); err == nil {
		return nil // of an earlier fetch, whose refs were not written
	}
	from, err := os.Open(f.ward.path(wardGit, "objects/pack", name))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	part := fmt.Sprintf("%s%d_%s", partPrefix, os.Getpid(), name)
	mode := f.mode.Perm()
	to, err := dir.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := to.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = dir.Rename(part, name)
		}
		if err != nil {
			_ = dir.Remove(part) // or the next fetch does
		}
	}()
	if err := unix.Flock(int(to.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if f.mode&shared != 0 {
		if err := to.Chmod(mode); err != nil {
			return err
		}
	}
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.Sync()
}

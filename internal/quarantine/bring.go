package quarantine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	maxSearched = 20_000 // commits among which it is looked for what the user has
	maxHave     = 2_000
)

// bring gets the objects that the user lacks into the quarantine: a pack that package
// pack has read, and an index that git has made of it.
func (f *fetch) bring(ctx context.Context) error {
	ids := make([]string, 0, len(f.take))
	for _, t := range f.take {
		ids = append(ids, t.id)
	}
	kinds, err := f.kinds(ctx, ids)
	if err != nil {
		return err
	}
	var want, have []string
	for _, id := range ids {
		switch {
		case kinds[id] != "":
			have = append(have, id)
		case !slices.Contains(want, id):
			want = append(want, id)
		}
	}
	if len(want) == 0 {
		return nil
	}
	frontier, err := f.frontier(ctx, want)
	if err != nil {
		return err
	}
	if err := f.receive(ctx, want, append(have, frontier...)); err != nil {
		return err
	}
	return f.index(ctx)
}

// frontier returns commits that the user has, and that lead to commits that the user
// lacks. A sandbox that lies about them has its objects refused, or more to send.
func (f *fetch) frontier(ctx context.Context, tips []string) ([]string, error) {
	out := &jail.Bounded{Limit: maxListed}
	if err := f.src.Commits(ctx, tips, maxSearched, out); err != nil {
		return nil, orOver(out, err, "a list of commits that is longer than can be")
	}
	var all []string
	parents := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(out.Bytes()))
	for lines.Scan() && len(parents) < maxSearched {
		ids := strings.Fields(lines.Text())
		for _, id := range ids {
			if !f.isID(id) {
				return nil, refused("a list of commits with a line that is none: %q", clip(lines.Text()))
			}
		}
		if len(ids) > 0 {
			parents[ids[0]] = ids[1:]
			all = append(all, ids...)
		}
	}
	if lines.Err() != nil {
		return nil, refused("a commit with more parents than can be")
	}
	slices.Sort(all)
	kinds, err := f.kinds(ctx, slices.Compact(all))
	if err != nil {
		return nil, err
	}
	var have []string
	for id, list := range parents {
		if kinds[id] != "" {
			continue
		}
		for _, p := range list {
			if kinds[p] == "commit" {
				have = append(have, p)
			}
		}
	}
	slices.Sort(have)
	have = slices.Compact(have)
	return have[:min(len(have), maxHave)], nil
}

// receive writes the sandbox's pack into the quarantine.
func (f *fetch) receive(ctx context.Context, want, have []string) (err error) {
	file, err := os.OpenFile(f.ward.path(wardIn, packFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		serr := f.src.Pack(ctx, want, have, pw)
		pw.CloseWithError(serr) // nil: the end of the pack
		sent <- serr
	}()
	p, err := pack.Scan(pr, file, f.Format, f.o.limits())
	if err != nil {
		cancel(err)
	}
	_ = pr.CloseWithError(io.ErrClosedPipe) // or the sender would wait for ever
	if serr := <-sent; err == nil {
		err = serr
	}
	f.pack = p
	return err
}

// index has git make an index of the pack and look at each object, and puts both where
// git finds them.
func (f *fetch) index(ctx context.Context) error {
	var args []string
	if !weak.On(weak.ObjectsUnchecked) {
		args = append(args, jail.Strictly)
	}
	err := f.git.Index(ctx, f.ward.path(wardIn, packFile), f.ward.path(wardOut, idxFile), f.pack.IndexBytes(), args...)
	if g, ok := errors.AsType[*jail.Error](err); ok {
		return refusedObjects(g)
	}
	if err != nil {
		return err
	}
	idx, err := os.Open(f.ward.path(wardOut, idxFile))
	if err != nil {
		return err
	}
	err = f.pack.CheckIndex(idx)
	_ = idx.Close() // it was only read
	if err != nil {
		return err
	}
	return errors.Join(
		os.Rename(f.ward.path(wardIn, packFile), f.ward.path(wardGit, "objects/pack", f.packName()+".pack")),
		os.Rename(f.ward.path(wardOut, idxFile), f.ward.path(wardGit, "objects/pack", f.packName()+".idx")))
}

// refusedObjects is the error of objects that git refuses.
func refusedObjects(g *jail.Error) error {
	if g.Code < 0 {
		return refused("objects at which git was ended: they need more than they may")
	}
	return refused("objects that git refuses: %s", clip(g.Says))
}

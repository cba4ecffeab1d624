package gitgate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// examine looks at all that would go upstream.
func (p *push) examine(ctx context.Context) error {
	for _, u := range p.order.updates {
		if u.New != "" {
			p.tips = append(p.tips, u.New)
		}
	}
	if len(p.tips) == 0 {
		return nil
	}
	for _, step := range []func(context.Context) error{p.types, p.list, p.forced} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	changes, err := p.changes(ctx)
	if err != nil {
		return err
	}
	if err := p.heldFiles(ctx, changes); err != nil {
		return err
	}
	return p.search(ctx, changes)
}

// denied is the error of a push that is refused for what it is.
func denied(format string, args ...any) error { return sandbox.Errorf(sandbox.Denied, format, args...) }

// types looks whether each ref would lead to what its name says.
func (p *push) types(ctx context.Context) error {
	var in strings.Builder
	for _, t := range p.tips {
		in.WriteString(t + "\n" + t + "^{commit}\n")
	}
	out, err := p.git.Output(ctx, strings.NewReader(in.String()), maxList, "cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return err
	}
	lines := strings.Split(string(out), "\n")
	if len(lines) != 2*len(p.tips)+1 {
		return errors.New("git does not say what was pushed")
	}
	i := 0
	for _, u := range p.order.updates {
		if u.New == "" {
			continue
		}
		kind, commit := lines[2*i], lines[2*i+1]
		i++
		switch {
		case commit != "commit":
			p.deny(u.Ref, "it would lead to no commit that there is")
		case kind != "commit" && !strings.HasPrefix(u.Ref, tags):
			p.deny(u.Ref, "it would lead to a %s", words(clip(kind, 20)))
		}
	}
	if len(p.refused) > 0 {
		return errRefused
	}
	return nil
}

// fromUpstream is what git rev-list reads: the tips, and all that upstream has.
func (p *push) fromUpstream() io.Reader {
	var b strings.Builder
	for _, t := range p.tips {
		b.WriteString(t + "\n")
	}
	for _, id := range p.known.refs {
		b.WriteString("^" + id + "\n")
	}
	return strings.NewReader(b.String())
}

// list finds the objects that upstream's refs do not lead to. All of them have to be there.
func (p *push) list(ctx context.Context) error {
	out, err := p.git.Output(ctx, p.fromUpstream(), maxList, "rev-list", "--objects", "--no-object-names", "--stdin")
	if g, ok := errors.AsType[*jail.Error](err); ok {
		return denied("what was pushed is not whole: %s (a shallow or partial clone may lack it: git fetch --unshallow --refetch)", clip(g.Says, 200))
	}
	if err != nil {
		return err
	}
	if bytes.Count(out, []byte("\n")) > maxPushed {
		return denied("more than %d objects", maxPushed)
	}
	sizes, err := p.git.Output(ctx, bytes.NewReader(out), maxList, "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(sizes)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return denied("what was pushed is not whole")
		}
		size, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || size < 0 {
			return errors.New("git does not say how large an object is")
		}
		p.objects = append(p.objects, object{f[0], f[1], size})
		if p.bytes += size; f[1] == "commit" {
			p.commits++
		}
		if f[1] == "blob" && size > p.remote.Policy.MaxBlob {
			return denied("a file of %s, where %s may be (push.max_blob)", term.FormatSize(size), term.FormatSize(p.remote.Policy.MaxBlob))
		}
	}
	switch pol := p.remote.Policy; {
	case p.bytes > pol.MaxPush:
		return denied("%s that is new, where %s may be (push.max_push)", term.FormatSize(p.bytes), term.FormatSize(pol.MaxPush))
	case p.commits > pol.MaxCommits:
		return denied("%d commits that are new, where %d may be (push.max_commits)", p.commits, pol.MaxCommits)
	}
	return nil
}

// forced finds updates by which upstream's refs would lose commits.
func (p *push) forced(ctx context.Context) error {
	for _, u := range p.order.updates {
		if u.Old == "" || u.New == "" {
			continue
		}
		lost := strings.HasPrefix(u.Ref, tags)
		if !lost {
			_, err := p.git.Output(ctx, nil, maxList, "merge-base", "--is-ancestor", u.Old, u.New)
			g, ok := errors.AsType[*jail.Error](err)
			if err != nil && !(ok && g.Code == 1 && g.Silent) {
				return err
			}
			lost = err != nil
		}
		if lost {
			p.find(Finding{Kind: ForcedRef, Why: "it would lose commits, or be another tag", Ref: u.Ref, Action: p.remote.Policy.Forced})
		}
	}
	return nil
}

// each has a git read objects one after the other.
func (p *push) each(ctx context.Context, git *jail.Git, ids []string, do func(o object, r io.Reader) error) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := git.Run(ctx, jail.Work{In: strings.NewReader(strings.Join(ids, "\n") + "\n"), Out: pw}, "cat-file", "--batch", "--buffer")
		pw.CloseWithError(err) // nil: that was all
		ended <- err
	}()
	err := eachOf(bufio.NewReaderSize(pr, 256<<10), p.known.format, ids, do)
	_ = pr.CloseWithError(io.ErrClosedPipe) // or git would wait for ever
	if err != nil {
		cancel()
	}
	if gerr := <-ended; err == nil {
		err = gerr
	}
	return err
}

// eachOf reads objects as git cat-file --batch writes them. What they have is held to their
// names: a git that was taken over by one can't show another thing than what is sent on.
func eachOf(r *bufio.Reader, format pack.Format, ids []string, do func(o object, r io.Reader) error) error {
	for _, id := range ids {
		head, err := r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("git does not tell of all objects: %w", err)
		}
		f := strings.Fields(string(head))
		if len(f) != 3 || f[0] != id {
			return denied("what was pushed is not whole")
		}
		size, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || size < 0 {
			return errors.New("git does not say how large an object is")
		}
		sum := format.New()
		_, _ = fmt.Fprintf(sum, "%s %d\x00", f[1], size) // a hash takes all
		body := &io.LimitedReader{R: r, N: size}
		if err := do(object{f[0], f[1], size}, io.TeeReader(body, sum)); err != nil {
			return err
		}
		if body.N > 0 || hex.EncodeToString(sum.Sum(nil)) != id {
			return errors.New("git does not read objects as they are")
		}
		if end, err := r.ReadByte(); err != nil || end != '\n' {
			return errors.New("git does not write objects as it says")
		}
	}
	return nil
}

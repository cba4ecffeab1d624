package relay

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/screen"
)

const (
	// picturePatience is how long what a command wrote before may take to become a picture.
	picturePatience = 5 * time.Second
	// nudge is how long a command's terminal is a line too small, so that what runs there draws
	// itself anew: a program that looks only later would see the same size as before.
	nudge = 200 * time.Millisecond
)

// Join joins this terminal to a command's, where both have one, with what that shows, until
// the command ends or the detach keys are typed. Elsewhere it passes on what the command wrote
// and writes. It returns how the command ended, and nil where it goes on. A command that was
// just begun for this terminal writes on it where the cursor is: there is no picture of before.
func (r *Relay) Join(svc *client.Client, id string, p *guestv1.Process, begun bool) (*guestv1.Exit, error) {
	in, ok := r.Stdin.(*os.File)
	if p.GetCommand().GetTerminal() == nil || !ok || !console.IsTerminal(in) || !console.IsTerminal(r.Stdout) {
		o := client.ExecOptions{Stdout: console.Output(r.Stdout), Stderr: console.Output(r.Stderr), Notice: r.Note}
		defer console.Flush(o.Stdout)
		defer console.Flush(o.Stderr)
		return svc.Follow(r.Ctx, id, p.GetId(), o)
	}
	ctx, leave := context.WithCancelCause(r.Ctx)
	defer leave(nil)
	t, err := makeRaw(in)
	if err != nil {
		return nil, err
	}
	r.Raw.Store(true)
	defer func() {
		t.restore()
		r.Raw.Store(false)
	}()
	measure := func() console.Size { return console.SizeOf(r.Stdin, r.Stdout) }
	size := p.GetCommand().GetTerminal()
	shown := &painter{
		out: r.Stdout, screen: screen.New(cells(size.GetCols()), cells(size.GetRows())), size: measure,
		until: p.GetStdoutBytes(), begun: time.Now(), modes: p.GetTerminalModes(), live: begun,
	}
	r.withTerminal(func() console.Size {
		now := measure()
		shown.resize(now)
		return now
	}, t.again)
	shown.painted = func() { r.redraw(ctx, measure()) }
	if err := shown.paintAt(0); err != nil {
		return nil, err
	}
	keys := &keyboard{ctx: ctx, leave: leave, typed: make(chan []byte)}
	go readTyped(ctx, in, keys.typed) // a read of a terminal can't be called off: it is left for the process to end
	end, err := svc.Follow(ctx, id, p.GetId(), client.ExecOptions{
		Stdout: shown, Stdin: keys, Join: true, Resize: r.resize, Notice: r.Note,
		Dropped: func(_ guestv1.Stream, _, to uint64) { shown.skip(to) },
	})
	ferr := shown.finish(end != nil)
	switch {
	case errors.Is(context.Cause(ctx), errDetached), context.Cause(r.Ctx) == ErrInterrupted, errors.Is(context.Cause(ctx), ErrInterrupted):
		return nil, nil // the command goes on, and who was here has left
	case err != nil:
		return nil, err
	}
	return end, ferr
}

// cells is a size as a screen has it.
func cells(n uint32) int { return int(min(n, 1<<15)) }

// redraw gives the command's terminal a size that it does not have, and then its own.
func (r *Relay) redraw(ctx context.Context, s console.Size) {
	if s.Cols == 0 || s.Rows < 2 {
		return
	}
	r.offer(console.Size{Cols: s.Cols, Rows: s.Rows - 1})
	r.done.Go(func() {
		select {
		case <-time.After(nudge):
			r.offer(s)
		case <-ctx.Done():
		}
	})
}

// painter puts what a command has written before onto a terminal as one picture, and passes
// on what comes after. The screen goes on with that, so that the terminal can be given back.
type painter struct {
	out     io.Writer
	screen  *screen.Screen
	size    func() console.Size
	until   uint64 // where the picture is due
	begun   time.Time
	painted func()
	modes   string // that what is gone had set, as sequences

	mu   sync.Mutex
	at   uint64
	live bool
}

// Write implements io.Writer.
func (p *painter) Write(b []byte) (int, error) {
	p.mu.Lock()
	live := p.live
	if before := p.until - min(p.until, p.at); !live && uint64(len(b)) > before && before > 0 {
		_, _ = p.screen.Write(b[:before]) // never fails
		p.at += before
		p.mu.Unlock()
		if err := p.paintAt(p.until); err != nil {
			return 0, err
		}
		n, err := p.Write(b[before:])
		return int(before) + n, err
	}
	_, _ = p.screen.Write(b) // never fails
	p.at += uint64(len(b))
	at := p.at
	p.mu.Unlock()
	if live {
		return p.out.Write(b)
	}
	return len(b), p.paintAt(at)
}

// paintAt paints, where that is due with so many bytes written, or overdue.
func (p *painter) paintAt(at uint64) error {
	p.mu.Lock()
	if p.live || at < p.until && time.Since(p.begun) < picturePatience {
		p.mu.Unlock()
		return nil
	}
	p.live = true
	s := p.size()
	picture := p.screen.Picture(int(s.Cols), int(s.Rows))
	p.screen.Resize(int(s.Cols), int(s.Rows))
	p.mu.Unlock()
	if _, err := io.WriteString(p.out, picture); err != nil {
		return err
	}
	p.painted()
	return nil
}

// skip goes on behind what is gone. What is on the terminal is not what it should be: the
// command draws it anew.
func (p *painter) skip(to uint64) {
	p.mu.Lock()
	p.at = max(p.at, to)
	live := p.live
	if !live {
		_, _ = io.WriteString(p.screen, p.modes) // never fails
	}
	p.mu.Unlock()
	if live {
		p.painted()
	}
}

func (p *painter) resize(s console.Size) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		p.screen.Resize(int(s.Cols), int(s.Rows))
	}
}

// finish gives the terminal back. What a command that has ended left on it stays.
func (p *painter) finish(ended bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	switch {
	case p.live:
		text = p.screen.Undo()
	case ended:
		text = p.screen.Text()
	}
	_, err := io.WriteString(p.out, text)
	return err
}

// keyboard is what is typed for a command, without the detach keys.
type keyboard struct {
	ctx   context.Context
	leave context.CancelCauseFunc
	typed chan []byte
	keys  detaching
	ready []byte
}

// Read implements io.Reader. It ends where somebody leaves, or the terminal is gone.
func (k *keyboard) Read(b []byte) (int, error) {
	for len(k.ready) == 0 {
		select {
		case <-k.ctx.Done():
			return 0, io.EOF
		case <-k.keys.due:
			k.ready = k.keys.release()
		case typed, ok := <-k.typed:
			if !ok {
				k.leave(ErrInterrupted)
				return 0, io.EOF
			}
			text, detach := k.keys.take(typed)
			k.ready = append(k.ready, text...)
			if detach {
				k.leave(errDetached)
				return 0, io.EOF
			}
		}
	}
	n := copy(b, k.ready)
	k.ready = k.ready[n:]
	return n, nil
}

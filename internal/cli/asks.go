package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// How many questions are told one by one in a while: a sandbox may ask any number.
const (
	askedLines  = 5
	askedWhile  = 10 * time.Second
	maxTitle    = 200 // bytes of a terminal's title
	bell        = "\a"
	saveTitle   = "\x1b[22;2t"
	resumeTitle = "\x1b[23;2t"
)

// watched says what befalls a sandbox while a command in it is attended: that its disk
// is full, and that it asks. screen says whether the command has the terminal.
func (a *app) watched(ctx context.Context, svc *client.Client, ref string, screen bool) (stop func()) {
	held := a.tellHeld(ctx, svc, ref)
	asked := tellAsked(ctx, a.Console, svc, ref, screen)
	return func() {
		asked()
		held()
	}
}

// asks tells who sits at a console what a sandbox asks a person.
type asks struct {
	*console.Console
	screen bool // a program inside has the terminal: its title alone is used

	told  map[int64]bool // those that wait
	begun time.Time      // of this while
	lines int            // in it
	title bool           // the title is ours
}

// tellAsked says on c what the sandbox asks, each question once, until stop is
// called: a bell and a line; where a program inside has the terminal, the title of
// that in its place, for as long as something waits.
func tellAsked(ctx context.Context, c *console.Console, svc *client.Client, ref string, screen bool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	a := &asks{Console: c, screen: screen, told: map[int64]bool{}}
	go func() {
		defer close(done)
		defer a.restore()
		sb, err := svc.Get(ctx, ref) // a name may be that of another owner's, too
		if err != nil {
			return
		}
		for one, err := range svc.FollowApprovals(ctx) {
			if err != nil {
				return // what is asked can still be seen by carboy approve
			}
			if one.SandboxID == sb.ID {
				a.tell(&one)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// tell says what is new of one.
func (a *asks) tell(one *api.Approval) {
	if one.State != string(approval.Asked) {
		delete(a.told, one.ID)
		if len(a.told) == 0 {
			a.restore()
		}
		return
	}
	if a.told[one.ID] {
		return
	}
	a.told[one.ID] = true
	text := fmt.Sprintf("asks: %s (rule %s) · carboy approve ", one.What, one.Rule)
	if a.screen { // a program inside may be able to read it back: it has no number
		a.setTitle("carboy: " + text + "ls")
		return
	}
	text += fmt.Sprintf("allow %d", one.ID)
	now := a.Now()
	if now.Sub(a.begun) > askedWhile {
		a.begun, a.lines = now, 0
	}
	switch a.lines++; {
	case a.lines == askedLines+1:
		text = "asks more: carboy approve ls"
	case a.lines > askedLines:
		return
	}
	if console.IsTerminal(a.Stderr) && !a.JSON {
		_, _ = io.WriteString(a.Stderr, bell)
	}
	a.NoteReason("asks", text)
}

// setTitle puts a text into the terminal's title, which is kept for later.
func (a *asks) setTitle(text string) {
	if !console.IsTerminal(a.Stdout) {
		return
	}
	save := ""
	if !a.title {
		save = saveTitle
	}
	a.title = true
	text = console.Escape(text)
	if len(text) > maxTitle {
		cut := maxTitle
		for cut > 0 && text[cut]&0xc0 == 0x80 {
			cut--
		}
		text = text[:cut] + "…"
	}
	_, _ = io.WriteString(a.Stdout, save+"\x1b]2;"+text+bell)
}

// restore gives the terminal its title back.
func (a *asks) restore() {
	if a.title {
		a.title = false
		_, _ = io.WriteString(a.Stdout, "\x1b]2;"+bell+resumeTitle)
	}
}

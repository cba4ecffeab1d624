package agents

import (
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
)

// TestScreen has a person work with each agent on a terminal, behind each wall: a
// prompt is typed and answered. In the middle of the next turn the terminal goes,
// and the daemon is killed; from another terminal the screen is there, and the turn
// goes on to its end.
func TestScreen(t *testing.T) {
	for _, a := range agents {
		for _, wall := range walls {
			t.Run(a.name+"/"+wall, func(t *testing.T) { screen(t, &a, wall) })
		}
	}
}

func screen(t *testing.T, a *agent, wall string) {
	w := &a.ways[0]
	model := fakemodel.NewServer(w.key, scripts...)
	p := newPlace(t, model, w.variables()...)
	first := p.open(p.agent(a, wall, a.interactive)...)
	first.shows(a.ready)
	first.enter(fixPrompt)
	model.Release()
	first.shows(answered)
	name := p.names()[0]
	p.asked(a, w)

	first.enter(holdPrompt)
	first.shows(firstHalf)
	first.hangUp()
	second := p.open("attach", name)
	second.shows(firstHalf)
	if model.Held() != 1 {
		t.Errorf("%d turns are under way behind a new terminal, want the one that was", model.Held())
	}
	second.hangUp()
	p.killDaemon()
	third := p.open("attach", name)
	third.shows(firstHalf)
	if text := third.text(); strings.Contains(text, otherHalf) {
		t.Error("the model has not said it yet")
	}
	model.Release()
	third.shows(otherHalf)
	p.taken(name)
}

// enter types a prompt as a person does who looks at the screen, until the model
// holds the turn: programs miss keys while they start. What came late of a prompt
// that is typed again is erased by Ctrl-U.
func (t *terminal) enter(prompt string) {
	t.p.t.Helper()
	shown := func() bool { return strings.Contains(t.text(), prompt) }
	held := func() bool { return t.p.model.Held() > 0 }
	for range 20 {
		if !shown() {
			t.types("\x15" + prompt)
		}
		if t.p.within(5*time.Second, shown) {
			t.types("\r")
		}
		if t.p.within(4*time.Second, held) {
			return
		}
	}
	t.p.t.Fatalf("the model is not asked %q", prompt)
}

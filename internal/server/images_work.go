package server

import (
	"net/http"
	"sync"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// Pulls and imports at work at once, of one owner and of all.
const (
	maxOwnerImageWork = 4
	maxImageWork      = 16
)

// imageSlots count the pulls and imports that are at work.
type imageSlots struct {
	mu    sync.Mutex
	all   int
	owner map[string]int
}

// take takes a slot for owner, or says that there is none; free gives it back.
func (l *imageSlots) take(owner string) (free func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner[owner] >= maxOwnerImageWork || l.all >= maxImageWork {
		return nil, sandbox.Errorf(sandbox.Exhausted, "images: too many are being pulled or imported").
			WithHint("wait until one is done")
	}
	if l.owner == nil {
		l.owner = map[string]int{}
	}
	l.all++
	l.owner[owner]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.owner[owner]--; l.owner[owner] == 0 {
			delete(l.owner, owner)
		}
	}, nil
}

// work answers with the progress of f and what came of it. What fails
// before there was any progress is an ordinary error.
func (a *imageAPI) work(w http.ResponseWriter, r *http.Request, f func(func(api.ImageProgress)) (api.Image, error)) {
	free, err := a.slots.take(auth.Of(r).Caller.Owner)
	if err != nil {
		wire.Error(w, err)
		return
	}
	defer free()
	out := newNewsStream(w, sameWork, func(p api.ImageProgress) any { return api.ImageEvent{Progress: &p} })
	img, err := f(out.report)
	begun := out.stop()
	last := api.ImageEvent{Image: &img}
	if err != nil {
		if !begun {
			wire.Error(w, err)
			return
		}
		wire.Failed(w, err)
		e := wire.Describe(err)
		last = api.ImageEvent{Error: &e}
	}
	out.line(last)
}

// sameWork reports whether news of an image are of the same phase of the same layer.
func sameWork(a, b api.ImageProgress) bool { return a.Layer == b.Layer && a.Phase == b.Phase }

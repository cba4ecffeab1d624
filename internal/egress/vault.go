package egress

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// wantLimit bounds how long a request waits for a secret that the daemon has
// to give.
const wantLimit = 20 * time.Second

// vault has the values of one sandbox's secrets, in memory alone.
type vault struct {
	wanted chan string // to the daemon

	mu      sync.Mutex
	values  map[string]value
	waiting map[string][]chan answered
}

func newVault() *vault {
	return &vault{wanted: make(chan string, 16), values: map[string]value{}, waiting: map[string][]chan answered{}}
}

// set replaces all values.
func (v *vault) set(values map[string]value) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values = make(map[string]value, len(values))
	for name, val := range values {
		v.values[name] = val
		if val.lasts() {
			v.giveLocked(answered{Name: name, Value: val})
		}
	}
	for name := range v.waiting { // the process that was asked may have died
		v.askLocked(name)
	}
}

// askLocked asks once more, on behalf of those who wait.
func (v *vault) askLocked(name string) {
	select {
	case v.wanted <- name:
	default: // there is much to be answered before
	}
}

// value returns a secret's, which is asked for where it is not there or has
// run out.
func (v *vault) value(ctx context.Context, name string) (string, error) {
	v.mu.Lock()
	val, ok := v.values[name]
	if ok && val.lasts() {
		v.mu.Unlock()
		return val.Text, nil
	}
	got := make(chan answered, 1)
	asked := len(v.waiting[name]) > 0
	v.waiting[name] = append(v.waiting[name], got)
	v.mu.Unlock()
	ask := v.wanted
	if asked {
		ask = nil
	}
	late := time.NewTimer(wantLimit)
	defer late.Stop()
	for {
		select {
		case ask <- name:
			ask = nil
		case a := <-got:
			if a.Error != "" {
				return "", errors.New(a.Error)
			}
			return a.Value.Text, nil
		case <-late.C:
			v.forget(name, got)
			return "", errors.New("the daemon does not answer")
		case <-ctx.Done():
			v.forget(name, got)
			return "", ctx.Err()
		}
	}
}

// forget drops somebody who no longer waits; with the last one, what was asked
// is asked again by the next.
func (v *vault) forget(name string, got chan answered) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting[name] = slices.DeleteFunc(v.waiting[name], func(c chan answered) bool { return c == got })
	if len(v.waiting[name]) == 0 {
		delete(v.waiting, name)
		return
	}
	v.askLocked(name)
}

// give hands a value to those who wait for it. One without a time in which it
// may be used again is not kept.
func (v *vault) give(a answered) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a.Error == "" && a.Value.Expires.After(time.Now()) {
		v.values[a.Name] = a.Value
	}
	v.giveLocked(a)
}

func (v *vault) giveLocked(a answered) {
	for _, c := range v.waiting[a.Name] {
		c <- a
	}
	delete(v.waiting, a.Name)
}

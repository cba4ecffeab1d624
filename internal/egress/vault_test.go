package egress

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// request asks a vault, and hands on what comes of it.
func request(ctx context.Context, v *vault, name string) <-chan string {
	got := make(chan string, 1)
	go func() {
		text, err := v.value(ctx, name)
		if err != nil {
			text = "error: " + err.Error()
		}
		got <- text
	}()
	return got
}

func wantNext(t *testing.T, what string, c <-chan string, want string) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-c:
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	default:
		t.Errorf("%s: nothing, want %q", what, want)
	}
}

func wantNothing(t *testing.T, what string, c <-chan string) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-c:
		t.Errorf("%s: %q, want nothing yet", what, got)
	default:
	}
}

func (v *vault) nobodyWaits(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.waiting) != 0 {
		t.Errorf("%d names are waited for still", len(v.waiting))
	}
}

func inVault(t *testing.T, test func(t *testing.T, v *vault)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := newVault()
		test(t, v)
		synctest.Wait()
		v.nobodyWaits(t)
	})
}

func TestVaultKeeps(t *testing.T) {
	inVault(t, func(t *testing.T, v *vault) {
		v.set(map[string]value{"A": {Text: "a"}, "B": {Text: "b", Expires: time.Now().Add(time.Minute)}})
		wantNext(t, "A", request(t.Context(), v, "A"), "a")
		wantNext(t, "B", request(t.Context(), v, "B"), "b")
		wantNothing(t, "asked for", v.wanted)
		time.Sleep(time.Minute)
		got := request(t.Context(), v, "B")
		wantNext(t, "asked for", v.wanted, "B")
		v.give(answered{Name: "B", Value: value{Text: "b2"}})
		wantNext(t, "B", got, "b2")
		v.set(nil) // what was taken from the sandbox is not here any more
		got = request(t.Context(), v, "A")
		wantNext(t, "asked for", v.wanted, "A")
		v.give(answered{Name: "A", Error: "it was removed"})
		wantNext(t, "A", got, "error: it was removed")
	})
}

// TestVaultAsksOnce: many requests that wait for one secret ask once, and a
// value for one use is not kept.
func TestVaultAsksOnce(t *testing.T) {
	inVault(t, func(t *testing.T, v *vault) {
		first, second := request(t.Context(), v, "A"), request(t.Context(), v, "A")
		other := request(t.Context(), v, "B")
		synctest.Wait()
		asked := []string{<-v.wanted, <-v.wanted}
		if strings.Join(asked, "") != "AB" && strings.Join(asked, "") != "BA" {
			t.Errorf("asked for %q", asked)
		}
		wantNothing(t, "asked for", v.wanted)
		v.give(answered{Name: "A", Value: value{Text: "once", Expires: time.Now()}})
		wantNext(t, "the first", first, "once")
		wantNext(t, "the second", second, "once")
		wantNothing(t, "of another name", other)
		v.give(answered{Name: "B", Value: value{Text: "kept", Expires: time.Now().Add(time.Minute)}})
		wantNext(t, "the other", other, "kept")
		wantNext(t, "what is kept", request(t.Context(), v, "B"), "kept")
		again := request(t.Context(), v, "A")
		wantNext(t, "asked for once more", v.wanted, "A")
		v.give(answered{Name: "A", Value: value{Text: "twice"}})
		wantNext(t, "the next", again, "twice")
	})
}

func TestVaultGivesUp(t *testing.T) {
	inVault(t, func(t *testing.T, v *vault) {
		got := request(t.Context(), v, "A")
		time.Sleep(wantLimit - time.Nanosecond)
		wantNothing(t, "before the limit", got)
		time.Sleep(time.Nanosecond)
		wantNext(t, "at the limit", got, "error: the daemon does not answer")
		ctx, cancel := context.WithCancelCause(t.Context())
		got = request(ctx, v, "A")
		synctest.Wait()
		cancel(errors.New("gone"))
		wantNext(t, "of one who left", got, "error: context canceled")
		v.give(answered{Name: "A", Value: value{Text: "late"}}) // nobody waits: no harm
	})
}

// TestVaultAsksAgain: where whoever asked leaves, or the daemon that was asked
// has died, those who wait still are not forgotten.
func TestVaultAsksAgain(t *testing.T) {
	inVault(t, func(t *testing.T, v *vault) {
		ctx, cancel := context.WithCancel(t.Context())
		first := request(ctx, v, "A")
		wantNext(t, "asked for", v.wanted, "A")
		second := request(t.Context(), v, "A")
		synctest.Wait()
		cancel()
		wantNext(t, "the first", first, "error: context canceled")
		wantNext(t, "asked for on behalf of the second", v.wanted, "A")
		v.set(map[string]value{"OTHER": {Text: "x"}}) // another daemon has come
		wantNext(t, "asked of another daemon", v.wanted, "A")
		v.set(map[string]value{"A": {Text: "a"}})
		wantNext(t, "the second", second, "a")
		wantNothing(t, "asked for", v.wanted)
	})
}

// TestVaultAsksForMany: more names than can be noted are all asked for.
func TestVaultAsksForMany(t *testing.T) {
	inVault(t, func(t *testing.T, v *vault) {
		const n = 100
		var all sync.WaitGroup
		for i := range n {
			name := fmt.Sprint("S", i)
			all.Go(func() {
				if got := <-request(t.Context(), v, name); got != "value of "+name {
					t.Errorf("%s: %q", name, got)
				}
			})
		}
		synctest.Wait()
		for range n {
			name := <-v.wanted
			v.give(answered{Name: name, Value: value{Text: "value of " + name}})
		}
		all.Wait()
	})
}

// TestVaultRaces: whoever asks gets what was given, whatever else goes on.
func TestVaultRaces(t *testing.T) {
	v := newVault()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case name := <-v.wanted:
				v.give(answered{Name: name, Value: value{Text: name}})
			case <-done:
				return
			}
		}
	}()
	defer close(done)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			name := fmt.Sprint("S", i%4)
			for n := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if n%3 == 0 {
					cancel()
				}
				got, err := v.value(ctx, name)
				cancel()
				if n%3 != 0 && (got != name || err != nil) {
					t.Errorf("%s: %q, %v", name, got, err)
				}
				if n%10 == 0 {
					v.set(map[string]value{"S0": {Text: "S0"}})
				}
			}
		})
	}
	all.Wait()
	v.nobodyWaits(t)
}

// TestValuesAreNotPrinted: a log that is given one by mistake does not have it.
func TestValuesAreNotPrinted(t *testing.T) {
	c := config{Secrets: map[string]value{"A": {Text: "hunter2"}}}
	a := answered{Name: "A", Value: value{Text: "hunter2"}}
	for _, text := range []string{
		fmt.Sprint(c.Secrets["A"]), fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%v %+v %#v", a, a, a), fmt.Sprintf("%+v", &a),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("printed: %s", text)
		}
	}
}

package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// window is the time that a rate is of, in slots of a second. One slot more
// makes sure that no minute, wherever it begins, has more.
const window = 60

// Meter holds what each rule of a sandbox has used up of its limits. It goes
// on through changes of the policy: a rule is the same while it has its ID.
type Meter struct {
	now func() time.Time

	mu    sync.Mutex
	rules map[string]*Account
}

// NewMeter returns a meter of rules that have used nothing. now may be nil:
// time.Now.
func NewMeter(now func() time.Time) *Meter {
	if now == nil {
		now = time.Now
	}
	return &Meter{now: now, rules: make(map[string]*Account)}
}

// Rule returns the account of a rule, under these limits from now on. Where
// they bound neither its rate nor its bytes in all it is nil, and an account
// that there was goes on to count.
func (m *Meter) Rule(id string, l policy.Limits) *Account {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.rules[id]
	if a == nil {
		if l.Bytes <= 0 && l.RequestsPerMinute <= 0 {
			return nil
		}
		a = &Account{now: m.now}
		m.rules[id] = a
	}
	a.bytes.Store(limit(l.Bytes))
	a.perMinute.Store(int64(max(l.RequestsPerMinute, 0)))
	return a
}

// Account is what one rule has used up. A nil one bounds nothing. Its methods
// may be called by several goroutines.
type Account struct {
	now              func() time.Time
	bytes, perMinute atomic.Int64
	used             atomic.Int64

	mu    sync.Mutex
	slots [window + 1]int64 // requests of each of the last seconds
	total int64             // of all slots
	at    int64             // the second that slots end with
}

// Take asks for n bytes and returns how many may pass, which are then used up:
// n, what is left where that is less, or 0.
func (a *Account) Take(n int64) int64 {
	if a == nil || n <= 0 {
		return max(n, 0)
	}
	for {
		used := a.used.Load()
		may := min(n, a.bytes.Load()-used)
		if may <= 0 {
			return 0
		}
		if a.used.CompareAndSwap(used, used+may) {
			return may
		}
	}
}

// Used returns the bytes that were taken.
func (a *Account) Used() int64 {
	if a == nil {
		return 0
	}
	return a.used.Load()
}

// Begin asks for one more request, or connection. Over the rate it refuses,
// and says after how long to ask again. What it refused does not count.
func (a *Account) Begin() (wait time.Duration, ok bool) {
	if a == nil {
		return 0, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.advance(now.Unix())
	if most := a.perMinute.Load(); most > 0 && a.total >= most {
		return a.free(most).Sub(now), false
	}
	a.slots[a.at%int64(len(a.slots))]++
	a.total++
	return 0, true
}

// advance forgets what is older than the window. A clock that goes back
// stands still.
func (a *Account) advance(second int64) {
	n := int64(len(a.slots))
	if second-a.at >= n {
		a.slots, a.total, a.at = [window + 1]int64{}, 0, second
		return
	}
	for a.at < second {
		a.at++
		a.total -= a.slots[a.at%n]
		a.slots[a.at%n] = 0
	}
}

// free returns when the window will hold less than most.
func (a *Account) free(most int64) time.Time {
	n := int64(len(a.slots))
	total := a.total
	for second := a.at - n + 1; second < a.at; second++ {
		if total -= a.slots[(second+n)%n]; total < most {
			return time.Unix(second+n, 0)
		}
	}
	return time.Unix(a.at+n, 0)
}

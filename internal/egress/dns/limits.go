package dns

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Bounds on names that no rule spells out: the server that answers for the zone above
// them reads whatever a guest puts into them. Real ones are seldom longer.
// Load balancers, buckets, previews and content addresses have one label of up
// to 63 characters; programs that tunnel fill several.
const (
	maxFreeName   = 128 // characters
	maxFreeLabels = 10
	longLabel     = 40 // characters; one label may be longer
)

// Bounds on names under one wildcard that were not asked for before, per
// minute. Each holds for a minute's worth at once, too.
const (
	newNameBytes = 4096 // characters: about 120 names as they are, or 32 of the longest
	newMissing   = 30   // names that do not exist, or that nobody answered for
)

const (
	maxSeen      = 2048
	maxWildcards = 256
)

// limits are what is left of what a guest may ask.
type limits struct {
	mu        sync.Mutex
	questions bucket
	seen      lru[string, struct{}]    // names that were paid for
	wildcards lru[string, *allowances] // by rule, and under the default by the last two labels
}

// allowances are those of one wildcard.
type allowances struct{ bytes, missing bucket }

func (l *limits) init() {
	l.seen = newLRU[string, struct{}](maxSeen)
	l.wildcards = newLRU[string, *allowances](maxWildcards)
}

// bucket is a token bucket that holds a minute's worth; the zero value is
// full.
type bucket struct {
	spent float64
	at    time.Time
}

// has reports whether n of perMinute are left.
func (b *bucket) has(now time.Time, perMinute, n int) bool {
	if d := now.Sub(b.at); d > 0 {
		b.spent = max(0, b.spent-float64(perMinute)*d.Minutes())
		b.at = now
	}
	return b.spent+float64(n) <= float64(perMinute)
}

// question takes one question from what may be asked.
func (l *limits) question(now time.Time, perMinute int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.questions.has(now, perMinute, 1) {
		return false
	}
	l.questions.spent++
	return true
}

// shape says why name, which no rule spells out, is refused for what it looks
// like; "" for others.
func shape(name string) string {
	if len(name) > maxFreeName {
		return fmt.Sprintf("names below a wildcard have at most %d characters, this one has %d", maxFreeName, len(name))
	}
	long, labels := 0, 0
	for label := range strings.SplitSeq(name, ".") {
		labels++
		if len(label) > longLabel {
			long++
		}
	}
	switch {
	case labels > maxFreeLabels:
		return fmt.Sprintf("names below a wildcard have at most %d labels, this one has %d", maxFreeLabels, labels)
	case long > 1:
		return fmt.Sprintf("names below a wildcard have at most one label over %d characters, this one has %d", longLabel, long)
	}
	return ""
}

// wildcard names what an allowance is for: the rule that let name through, or
// the end of the name where none did.
func wildcard(name, rule string) string {
	if rule != "default" && rule != "" {
		return "rule " + rule
	}
	last := strings.LastIndexByte(name, '.')
	if last < 0 {
		return name
	}
	return name[strings.LastIndexByte(name[:last], '.')+1:]
}

// spend takes a name that no rule spells out from the allowances of its
// wildcard, unless it was paid for before. It returns what to call, once, when
// the name turns out to exist, and why the name may not be asked for, or "".
func (l *limits) spend(name, rule string, now time.Time) (exists func(), reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen.get(name); ok {
		return func() {}, ""
	}
	key := wildcard(name, rule)
	w, ok := l.wildcards.get(key)
	if !ok {
		w = &allowances{}
		l.wildcards.put(key, w)
	}
	switch {
	case !w.bytes.has(now, newNameBytes, len(name)):
		return nil, fmt.Sprintf("too many new names below one wildcard: at most %d characters of them a minute", newNameBytes)
	case !w.missing.has(now, newMissing, 1):
		return nil, fmt.Sprintf("too many names below one wildcard that nobody knows: at most %d a minute", newMissing)
	}
	w.bytes.spent += float64(len(name))
	w.missing.spent++
	l.seen.put(name, struct{}{})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		w.missing.spent = max(0, w.missing.spent-1)
	}, ""
}

package skill

import (
	"encoding/json"
	"maps"
	"sync"
)

// Brought is what one sandbox has of a store's packages. A session keeps one
// as long as its sandbox lives, and keeps it in its record, as JSON. The zero
// value is that of a new sandbox. It is safe for concurrent use.
type Brought struct {
	mu      sync.Mutex // held by a whole Bring or TakeBack
	copies  map[string]held
	checked bool // whether the sandbox was seen to have them

	record sync.Mutex // guards what is below, which is what MarshalJSON sees
	last   map[string]held
}

// held is one package that a sandbox has.
type held struct {
	Dir  string `json:"dir"`
	Mode string `json:"mode"`
	Sum  string `json:"sum"` // of its content, as it was brought or taken back
}

// Restarted says that the sandbox was started again, after which it may have
// lost what it had.
func (b *Brought) Restarted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checked = false
}

// Any reports whether there is any package, which may have to go.
func (b *Brought) Any() bool {
	b.record.Lock()
	defer b.record.Unlock()
	return len(b.last) > 0
}

// Writable returns the packages that are there and may be changed there.
func (b *Brought) Writable() []Placed {
	b.record.Lock()
	defer b.record.Unlock()
	var out []Placed
	for name, h := range b.last {
		if h.Mode == writable {
			out = append(out, Placed{Name: name, Dir: h.Dir, Mode: h.Mode})
		}
	}
	return out
}

// MarshalJSON writes what is to be kept.
func (b *Brought) MarshalJSON() ([]byte, error) {
	b.record.Lock()
	defer b.record.Unlock()
	return json.Marshal(b.last)
}

// UnmarshalJSON reads what was kept.
func (b *Brought) UnmarshalJSON(text []byte) error {
	var last map[string]held
	if err := json.Unmarshal(text, &last); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checked, b.copies = false, last
	b.publish()
	return nil
}

// set remembers one package, or, with nil, forgets it.
func (b *Brought) set(name string, h *held) {
	if h == nil {
		delete(b.copies, name)
	} else {
		if b.copies == nil {
			b.copies = make(map[string]held)
		}
		b.copies[name] = *h
	}
	b.publish()
}

func (b *Brought) publish() {
	b.record.Lock()
	defer b.record.Unlock()
	b.last = maps.Clone(b.copies)
}

package tlswire

import (
	"container/list"
	"crypto/tls"
	"sync"
	"time"
)

// maxCached bounds the certificates that are kept, at about 3 KiB each. To
// make one anew costs less than a millisecond.
const maxCached = 256

// cache keeps the certificates used last. The zero value works.
type cache struct {
	mu     sync.Mutex
	byName map[string]*list.Element // of *entry
	recent list.List                // the last used in front
}

// entry is a certificate that somebody makes, once, however many ask for it at
// the same time.
type entry struct {
	name string
	once sync.Once
	cert *tls.Certificate
	err  error
}

func (e *entry) make(sign func(string) (*tls.Certificate, error)) (*tls.Certificate, error) {
	e.once.Do(func() { e.cert, e.err = sign(e.name) })
	return e.cert, e.err
}

// get returns a certificate for name which is valid at least until the given
// time, unless its authority is not.
func (c *cache) get(name string, until time.Time, sign func(string) (*tls.Certificate, error)) (*tls.Certificate, error) {
	e := c.entry(name)
	cert, err := e.make(sign)
	if err != nil || cert.Leaf.NotAfter.Before(until) {
		c.drop(e)
	}
	if err != nil || !cert.Leaf.NotAfter.Before(until) {
		return cert, err
	}
	return c.entry(name).make(sign)
}

// entry returns the entry of name, which is new where there was none.
func (c *cache) entry(name string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.byName[name]; ok {
		c.recent.MoveToFront(at)
		return at.Value.(*entry)
	}
	if c.byName == nil {
		c.byName = make(map[string]*list.Element)
	}
	e := &entry{name: name}
	c.byName[name] = c.recent.PushFront(e)
	for len(c.byName) > maxCached {
		oldest := c.recent.Back()
		delete(c.byName, c.recent.Remove(oldest).(*entry).name)
	}
	return e
}

// drop takes e out, unless another is there in its place already.
func (c *cache) drop(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.byName[e.name]; ok && at.Value.(*entry) == e {
		c.recent.Remove(at)
		delete(c.byName, e.name)
	}
}

package gitgate

import (
	"io"
	"net"
	"time"
)

// OrderForTest reads what a client that pushes says first.
func OrderForTest(r io.Reader) ([]Update, error) {
	o, err := readOrder(r)
	if err != nil {
		return nil, err
	}
	return o.updates, nil
}

// AdvertForTest reads what an upstream says first.
func AdvertForTest(r io.Reader) (map[string]string, error) {
	a, err := readAdvert(r)
	if err != nil {
		return nil, err
	}
	return a.refs, nil
}

// MaxPacksForTest has mirrors tidied for that many packs, until end is called.
func MaxPacksForTest(n int) (end func()) {
	was := maxPacks
	maxPacks = n
	return func() { maxPacks = was }
}

// TimesForTest has clients wait otherwise, until end is called.
func TimesForTest(stall, alive time.Duration) (end func()) {
	s, a := stallTime, aliveTime
	stallTime, aliveTime = stall, alive
	return func() { stallTime, aliveTime = s, a }
}

// ServingForTest has gates serve that many at once, until end is called.
func ServingForTest(n int) (end func()) {
	was := maxServing
	maxServing = n
	return func() { maxServing = was }
}

// IdleForTest is a connection to an upstream.
func IdleForTest(c net.Conn) net.Conn { return newIdle(c) }

// ChangesForTest reads what commits change.
func ChangesForTest(text string) (paths []string, err error) {
	all, err := parseChanges(text, 40)
	for _, c := range all {
		paths = append(paths, c.path)
	}
	return paths, err
}

// ProtectsForTest reports whether a ref is protected by a pattern, if that is one.
func ProtectsForTest(pattern, ref string) (bool, error) {
	p, err := Policy{Protected: []string{pattern}}.complete()
	return p.protects(ref), err
}

// BaseForTest is where an upstream by HTTPS is asked.
func BaseForTest(url string) (string, error) {
	p, err := parseURL(url)
	return newHTTPS("x", p, nil, nil, nil).base().String(), err
}

package instance

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Of what a launcher sends, one message with one descriptor is a link; nothing
// else is, and a launcher that ends is not waited for.
func TestReceiveTAP(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	tests := map[string]struct {
		send func(socket int) error
		ok   bool
	}{
		"link":            {func(s int) error { return unix.Sendmsg(s, []byte(linkMessage), unix.UnixRights(fd), nil, 0) }, true},
		"nothing":         {func(int) error { return nil }, false},
		"no-descriptor":   {func(s int) error { return unix.Sendmsg(s, []byte(linkMessage), nil, nil, 0) }, false},
		"two-descriptors": {func(s int) error { return unix.Sendmsg(s, []byte(linkMessage), unix.UnixRights(fd, fd), nil, 0) }, false},
		"other-message":   {func(s int) error { return unix.Sendmsg(s, []byte("pat"), unix.UnixRights(fd), nil, 0) }, false},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := socketPair()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			if err := errors.Join(withFD(theirs, c.send), theirs.Close()); err != nil {
				t.Fatal(err)
			}
			before := openFiles(t)
			tap, err := receiveTAP(ours)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, errNoTAP) {
				t.Errorf("got %v", err)
			}
			if tap != nil {
				tap.Close()
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d files are open, before %d", after, before)
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A launcher makes a link for the instance that is to have one, and only without
// root, which has made it already.
func TestMakeLinkForWhom(t *testing.T) {
	for _, p := range []*Layout{{}, {Linked: true}, {Rootless: true}} {
		if err := MakeLink(p, nil); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := MakeLink(&Layout{Linked: true, Rootless: true}, nil); err == nil {
		t.Error("a link was made by nothing")
	}
}

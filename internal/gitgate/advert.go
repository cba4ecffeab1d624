package gitgate

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
)

const (
	maxRefs   = 100_000   // that pass here
	maxLines  = 1_000_000 // of all refs: forges have one for each request to merge
	maxAdvert = 128 << 20 // bytes
)

// advert is what a server says first: its refs, and what it can do.
type advert struct {
	refs   map[string]string // object by name: those that pass here
	head   string            // the branch that HEAD stands for; "" where it is not said
	format pack.Format
	caps   map[string]bool // by their words, without values
}

// remoteError is what upstream says of why it does not do what it was asked.
type remoteError struct{ says string }

// Error implements error.
func (e *remoteError) Error() string { return "upstream says: " + e.says }

// readAdvert reads a server's refs.
func readAdvert(r io.Reader) (*advert, error) {
	lines := pktline.NewReader(io.LimitReader(r, maxAdvert))
	a := &advert{refs: map[string]string{}, format: pack.SHA1, caps: map[string]bool{}}
	for n := 0; ; n++ {
		kind, data, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: it ended before it had told its refs", errLost)
		case err != nil:
			return nil, err
		case kind == pktline.Flush:
			return a, nil
		case kind != pktline.Data || n > maxLines || len(a.refs) > maxRefs:
			return nil, errors.New("a list of refs that is none, or longer than can be")
		}
		line := strings.TrimSuffix(string(data), "\n")
		if says, ok := strings.CutPrefix(line, "ERR "); ok {
			return nil, &remoteError{clip(says, maxWords)}
		}
		if n == 0 && line == "version 1" {
			n--
			continue
		}
		line, words, first := strings.Cut(line, "\x00")
		if first != (n == 0) {
			return nil, errors.New("a list of refs that does not begin as one")
		}
		if first {
			a.read(words)
		}
		if err := a.add(line); err != nil {
			return nil, err
		}
	}
}

// read takes in the words for what a server can do.
func (a *advert) read(words string) {
	for word := range strings.FieldsSeq(words) {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case name == "object-format":
			a.format = pack.Format(value)
		case name == "symref":
			if head, ok := strings.CutPrefix(value, "HEAD:"); ok {
				a.head = head
			}
		}
		a.caps[name] = true
	}
}

// add takes in a ref.
func (a *advert) add(line string) error {
	if a.format != pack.SHA1 && a.format != pack.SHA256 {
		return fmt.Errorf("it has the format %.20q, where sha1 and sha256 are known", string(a.format))
	}
	id, name, ok := strings.Cut(line, " ")
	switch {
	case id == "shallow":
		return errors.New("it is a shallow clone itself, and lacks history")
	case !ok || !isID(id, a.format):
		return fmt.Errorf("a list of refs with a line that is none: %.80q", line)
	case name == "capabilities^{}" || strings.HasSuffix(name, "^{}") || !kept(name):
		return nil
	}
	if err := checkRef(name); err != nil {
		return err
	}
	if _, twice := a.refs[name]; twice {
		return fmt.Errorf("the ref %.80q twice", name)
	}
	a.refs[name] = id
	return nil
}

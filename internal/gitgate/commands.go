package gitgate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
)

// forPush says what there is upstream, to a client that wants to push. Thin packs and
// push options are not among what it may send.
func (a *advert) forPush() []byte {
	b := pktline.AppendFlush(pktline.Append(nil, "# service="+receivePack+"\n"))
	caps := "\x00report-status delete-refs side-band-64k quiet atomic ofs-delta no-thin object-format=" + string(a.format) + " agent=carboy"
	for _, name := range slices.Sorted(maps.Keys(a.refs)) {
		b = pktline.Append(b, a.refs[name]+" "+name+caps+"\n")
		caps = ""
	}
	if caps != "" {
		b = pktline.Append(b, none(a.format)+" capabilities^{}"+caps+"\n")
	}
	return pktline.AppendFlush(b)
}

// order is what a client that pushes says before its objects.
type order struct {
	format  pack.Format // of the names that it has
	updates []Update
	caps    map[string]bool
	refused map[string]string // why, by ref
}

const (
	maxCommands = 4096 // that are read, before a policy says how many there may be
	maxShallow  = 100_000
)

// errAsked is of a request by which a client only asks whether it may.
var errAsked = errors.New("an empty request")

// readOrder reads what a client wants done. With an error, it is what was read until then.
func readOrder(r io.Reader) (*order, error) {
	lines := pktline.NewReader(r)
	o := &order{format: pack.SHA1, caps: map[string]bool{}, refused: map[string]string{}}
	for shallow := 0; ; {
		kind, data, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return o, errors.New("a push that ends before it has said what is pushed")
		case err != nil:
			return o, err
		case kind == pktline.Flush && len(o.updates) == 0 && shallow == 0:
			return o, errAsked
		case kind == pktline.Flush:
			return o, o.check()
		case kind != pktline.Data:
			return o, errors.New("a push that is none of git's")
		}
		line := strings.TrimSuffix(string(data), "\n")
		id, shallows := strings.CutPrefix(line, "shallow ")
		if name, _, _ := strings.Cut(id, " "); len(name) == 2*pack.SHA256.Size() && shallow == 0 && len(o.updates) == 0 {
			o.format = pack.SHA256
		}
		if shallows {
			// What the client lacks is no matter, if upstream has it: that is looked at.
			if shallow++; !isID(id, o.format) || shallow > maxShallow {
				return o, errors.New("a push from a shallow clone that does not say how")
			}
			continue
		}
		if strings.HasPrefix(line, "push-cert") {
			return o, errors.New("signed pushes do not pass: sign commits or tags instead")
		}
		if err := o.add(line); err != nil {
			return o, err
		}
	}
}

// add takes in a command.
func (o *order) add(line string) error {
	f := o.format
	line, caps, first := strings.Cut(line, "\x00")
	if first != (len(o.updates) == 0) || len(o.updates) == maxCommands {
		return errors.New("a push that is none of git's")
	}
	if first {
		for word := range strings.FieldsSeq(caps) {
			name, _, _ := strings.Cut(word, "=")
			o.caps[name] = true
		}
	}
	before, rest, ok := strings.Cut(line, " ")
	after, ref, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !isID(before, f) || !isID(after, f) {
		return errors.New("a push with a command that is none of git's")
	}
	if err := checkName(ref); err != nil {
		return err
	}
	if !kept(ref) {
		o.refused[ref] = "only branches, tags and notes pass the git gate"
	}
	u := Update{Ref: ref, Old: before, New: after}
	if u.Old == none(f) {
		u.Old = ""
	}
	if u.New == none(f) {
		u.New = ""
	}
	if u.Old == u.New {
		return fmt.Errorf("%s: there is nothing to do", short(ref))
	}
	if slices.ContainsFunc(o.updates, func(other Update) bool { return other.Ref == ref }) {
		return fmt.Errorf("%s: twice in one push", short(ref))
	}
	o.updates = append(o.updates, u)
	return nil
}

// check refuses what no push may have.
func (o *order) check() error {
	switch {
	case o.caps["push-options"]:
		return errors.New("push options do not pass: leave -o out")
	case !o.caps["report-status"]:
		return errors.New("a git that does not want to know how its push ended")
	case len(o.updates) == 0:
		return errors.New("a push of nothing")
	}
	return nil
}

// objects reports whether objects come with it.
func (o *order) objects() bool {
	return slices.ContainsFunc(o.updates, func(u Update) bool { return u.New != "" })
}

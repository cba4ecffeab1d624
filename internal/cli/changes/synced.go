package changes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	syncedDir = "synced" // what syncs brought, one file for each sandbox

	maxSynced = 256 << 20
)

// synced is what is known of a sandbox's workspace after a sync.
type synced struct {
	// Seen is what the directory had, by path: what is missing later was deleted here.
	Seen []workspace.Mark `json:"seen"`
	// Brought is what was brought.
	Brought []workspace.Brought `json:"brought"`
	// Pending is what a sync was about to bring that did not come to its end: it may
	// be there or not.
	Pending []workspace.Brought `json:"pending,omitempty"`

	noted bool // it was read of a file
}

// bring adds what was brought, in the place of what was brought there before.
func (s *synced) bring(list []workspace.Brought) {
	if len(list) == 0 {
		return
	}
	fresh := make(map[string]bool, len(list))
	for _, b := range list {
		fresh[b.Path] = true
	}
	s.Brought = append(slices.DeleteFunc(s.Brought, func(b workspace.Brought) bool { return fresh[b.Path] }), list...)
}

// resume takes up what was pending.
func (s *synced) resume() {
	s.Brought = append(s.Brought, s.Pending...)
	if len(s.Seen) == 0 {
		return
	}
	pending := make(map[string]bool, len(s.Pending))
	for _, b := range s.Pending {
		pending[b.Path] = true
	}
	s.Seen = slices.DeleteFunc(s.Seen, func(m workspace.Mark) bool { return pending[m.Path] })
	for _, b := range s.Pending {
		s.Seen = append(s.Seen, workspace.Mark{Path: b.Path}) // so that it is looked at again
	}
}

// loadSynced returns what syncs of a sandbox left, empty for none.
func (r *Reviewer) loadSynced(id string) (*synced, error) {
	s := &synced{}
	if !sandbox.ValidID(id) {
		return s, nil
	}
	b, err := r.readState(syncedDir, id+".json", maxSynced)
	if err != nil || b == nil {
		return s, err
	}
	s.noted = true
	err = json.Unmarshal(b, s)
	if err == nil {
		err = s.rename(fromRecord)
	}
	if err != nil {
		return s, fmt.Errorf("read what was synced before, of sandbox %s: %w", id, err)
	}
	s.resume()
	return s, nil
}

func (r *Reviewer) saveSynced(id string, s *synced) error {
	if !sandbox.ValidID(id) {
		return nil
	}
	as := synced{Seen: slices.Clone(s.Seen), Brought: slices.Clone(s.Brought), Pending: slices.Clone(s.Pending)}
	err := as.rename(func(name string) (string, error) { return inRecord(name), nil })
	if err != nil {
		return err
	}
	b, err := json.Marshal(as)
	if err != nil {
		return err
	}
	return r.writeState(syncedDir, id+".json", b)
}

// rename gives every name another form.
func (s *synced) rename(to func(string) (string, error)) error {
	var names []*string
	for i := range s.Seen {
		names = append(names, &s.Seen[i].Path)
	}
	for _, list := range [][]workspace.Brought{s.Brought, s.Pending} {
		for i := range list {
			names = append(names, &list[i].Path, &list[i].Target)
		}
	}
	for _, name := range names {
		other, err := to(*name)
		if err != nil {
			return err
		}
		*name = other
	}
	return nil
}

// rawName begins a name that is no UTF-8, which JSON can't have: no file's begins so.
const rawName = "\x00"

func inRecord(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return rawName + base64.StdEncoding.EncodeToString([]byte(name))
}

func fromRecord(name string) (string, error) {
	code, raw := strings.CutPrefix(name, rawName)
	if !raw {
		return name, nil
	}
	b, err := base64.StdEncoding.DecodeString(code)
	return string(b), err
}

// Package record is what is remembered of a session between two lives of the
// daemon, and how it is written: JSON that is read strictly. It does nothing
// with it, and knows neither walls nor stores.
//
// What a record does not hold: the command, its environment and what it wrote.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// State is where a session is in its life. It is written before it is acted
// on, so that nothing that a daemon began is without a record.
type State string

// The states.
const (
	Creating State = "creating" // its sandbox is being made, by nobody else's word than this
	Live     State = "live"     // its sandbox was there
	Asleep   State = "asleep"   // its sandbox was stopped for being idle, and is kept
	Closing  State = "closing"  // it is being deleted, with its sandbox
)

// Session is one session.
type Session struct {
	ID      string          `json:"id"` // ours: "bx_" and 20 characters
	Owner   string          `json:"owner"`
	Key     string          `json:"key"` // as its owner calls it
	State   State           `json:"state"`
	Sandbox string          `json:"sandbox"` // its name, chosen before it is made
	Spec    request.Session `json:"spec"`    // what was asked for, and lasts
	// Image is what Spec's image was when the sandbox was made, pinned.
	Image     string    `json:"image"`
	Workspace Workspace `json:"workspace"`
	// Notices say what of it is otherwise than was asked, for as long as it is
	// there.
	Notices    []string  `json:"notices,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"last_used_at"` // or somewhat later
	SleptAt    time.Time `json:"slept_at,omitzero"`
	// Processes are the managed ones, by their ID, as the package that runs them
	// writes them.
	Processes map[string]json.RawMessage `json:"processes,omitempty"`
	// Skills is what the sandbox has of them, likewise.
	Skills json.RawMessage `json:"skills,omitempty"`
}

// Kinds of a Workspace.
const (
	Private = "private" // the sandbox's own
	HostDir = "host"    // a directory of the host's, shown as it is
	Volume  = "volume"  // a disk of the owner's, which outlives the session
)

// Workspace is what Spec.Workspace became.
type Workspace struct {
	Kind   string          `json:"kind"`
	Dir    sandbox.HostDir `json:"dir,omitzero"`
	Volume string          `json:"volume,omitempty"` // its ID
	Quota  string          `json:"quota,omitempty"`  // request.QuotaHard or request.QuotaSoft; "": there is none
	// Limit is the quota in bytes, Inodes in files; 0: none.
	Limit  int64 `json:"limit,omitempty"`
	Inodes int64 `json:"inodes,omitempty"`
	// Project is what the directory is to its file system, where that holds it to
	// its quota; 0: nothing.
	Project uint32 `json:"project,omitempty"`
}

// Clone returns a copy that shares nothing that is changed in place.
func (s Session) Clone() Session {
	s.Notices = slices.Clone(s.Notices)
	s.Spec.Mounts = slices.Clone(s.Spec.Mounts)
	s.Skills = slices.Clone(s.Skills)
	if s.Processes != nil {
		ps := make(map[string]json.RawMessage, len(s.Processes))
		for id, p := range s.Processes {
			ps[id] = slices.Clone(p)
		}
		s.Processes = ps
	}
	return s
}

// Marshal writes s.
func Marshal(s Session) ([]byte, error) { return json.Marshal(s) }

// Parse reads what Marshal wrote, now or before records had a request.Session,
// and nothing else: a field that this version does not know may be a promise that
// it would not keep.
func Parse(b []byte) (Session, error) {
	var on struct {
		Session
		Spec json.RawMessage `json:"spec"`
	}
	if err := decode(b, &on); err != nil {
		return Session{}, fmt.Errorf("record of a session: %w", err)
	}
	s := on.Session
	var err error
	switch {
	case len(on.Spec) == 0:
	case isOlder(on.Spec):
		var older olderSpec
		err = decode(on.Spec, &older)
		s.Spec = older.request()
	default:
		err = decode(on.Spec, &s.Spec)
	}
	if err != nil {
		return Session{}, fmt.Errorf("record of a session: what was asked for: %w", err)
	}
	s.Spec.Key = s.Key
	switch s.State {
	case Creating, Live, Asleep, Closing:
	default:
		return Session{}, fmt.Errorf("record of a session: state %.40q is none", s.State)
	}
	if s.ID == "" || s.Owner == "" || s.Key == "" || s.Sandbox == "" {
		return Session{}, errors.New("record of a session: it lacks its ID, owner, key or sandbox")
	}
	return s, nil
}

func decode(b []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows it")
	}
	return nil
}

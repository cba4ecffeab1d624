package project

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/carboy-sandbox/carboy/internal/home/statedir"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	approvalsDir = "projects"
	maxApproval  = 256 << 10
)

// Approval is what a user has allowed a project: one text, in one directory.
type Approval struct {
	Dir    sandbox.HostDir `json:"dir"`
	Digest string          `json:"digest"`
	Asks   []string        `json:"asks"` // as they were shown
	At     time.Time       `json:"at"`
}

// Covers reports whether that text was allowed, in that very directory.
func (a *Approval) Covers(t *Text) bool {
	return a != nil && a.Digest == t.Digest && a.Dir.Same(t.Dir)
}

// Approvals keeps what a user has allowed, in a directory of the user's own state: a
// file for each directory of a project, which is there whole or not at all. Of several
// who write at once the last one's counts.
type Approvals struct{ State string }

// Get returns what was allowed at a directory's path last; nil where nothing was. A
// record that can't be read as one is nothing.
func (a Approvals) Get(dir sandbox.HostDir) (*Approval, error) {
	d, err := statedir.Open(a.State, approvalsDir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	b, err := d.ReadOwn(record(dir), maxApproval)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseApproval(b), nil
}

// parseApproval reads what Put wrote, and nothing else.
func parseApproval(b []byte) *Approval {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var a Approval
	if err := dec.Decode(&a); err != nil {
		return nil
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) || len(a.Digest) != 2*sha256.Size {
		return nil
	}
	return &a
}

// Put allows a text, in place of what was allowed there before.
func (a Approvals) Put(t *Text, asks []string, now time.Time) error {
	d, err := statedir.Open(a.State, approvalsDir, true)
	if err != nil {
		return err
	}
	defer d.Close()
	b, err := json.Marshal(Approval{Dir: t.Dir, Digest: t.Digest, Asks: asks, At: now.UTC().Round(0)})
	if err != nil {
		return err
	}
	return d.Write(record(t.Dir), b)
}

// Delete takes back what was allowed at a directory's path, and reports whether there
// was anything.
func (a Approvals) Delete(dir sandbox.HostDir) (bool, error) {
	d, err := statedir.Open(a.State, approvalsDir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	err = d.Remove(record(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// record is the name of a directory's file.
func record(dir sandbox.HostDir) string {
	sum := sha256.Sum256([]byte(dir.Path))
	return hex.EncodeToString(sum[:16]) + ".json"
}

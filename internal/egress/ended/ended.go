// Package ended keeps what sandboxes tried to reach that have no gate to tell it: those
// that ended, and those without a network, whose agents are asked.
//
// Each sandbox is one file. Its name has the time, the ID and digests of its owner and
// of its name, by which it is found: none is read for another's sake. What is kept is
// bounded: a day, a hundred sandboxes of one owner, a thousand in all, and some
// hundred kilobytes of each. What agents say is hostile: bounded, escaped, and never
// followed.
package ended

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of what is kept.
const (
	Age      = 24 * time.Hour
	PerOwner = 100  // sandboxes
	InAll    = 1000 // sandboxes
	MaxFile  = 512 << 10
)

// CodeNoNetwork is why a name was refused that a sandbox without a network asked for.
const CodeNoNetwork = "no_network"

// Records implements sandbox.NetRecords in a directory, which is made when it is
// needed.
type Records struct {
	dir string
	now func() time.Time
	mu  sync.Mutex // one change at a time
}

var _ sandbox.NetRecords = (*Records)(nil)

// New returns Records in dir. now may be nil: time.Now. It touches nothing.
func New(dir string, now func() time.Time) *Records {
	if now == nil {
		now = time.Now
	}
	return &Records{dir: dir, now: now}
}

// Asked implements sandbox.NetRecords.
func (r *Records) Asked(ctx context.Context, id string, dial func(context.Context) (net.Conn, error)) ([]netlog.Record, error) {
	said, err := agent.New(dial).Asked(ctx)
	if err != nil {
		return nil, err
	}
	now := r.now()
	var out []netlog.Record
	for i, a := range said.Names {
		rec := netlog.Record{
			Seq: uint64(i) + 1, Time: a.Last, Sandbox: id, Verdict: netlog.Deny, Code: CodeNoNetwork, Reason: "the sandbox has no network",
			Protocol: "dns", Host: a.Name, Method: a.Type, Result: "NXDOMAIN", Count: max(a.Count, 1),
		}
		if rec.Time.After(now) || now.Sub(rec.Time) > 365*24*time.Hour { // it is the guest's clock
			rec.Time = now
		}
		out = append(out, netlog.Bounded(rec))
	}
	if said.Others > 0 {
		out = append(out, netlog.Record{
			Seq: uint64(len(out)) + 1, Time: now, Sandbox: id, Verdict: netlog.Deny, Code: netlog.CodeNotShown, Protocol: "dns",
			Reason: "questions for other names", Count: said.Others,
		})
	}
	return out, nil
}

// kept is a file.
type kept struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Owner   string          `json:"owner"`
	Records []netlog.Record `json:"records"`
}

// Keep implements sandbox.NetRecords. Where they are too long the oldest go.
func (r *Records) Keep(_ context.Context, n sandbox.EndedNet) error {
	if !validID(n.ID) {
		return fmt.Errorf("keep records: %q is no sandbox's ID", n.ID)
	}
	k := kept{ID: n.ID, Name: n.Name, Owner: n.Owner, Records: n.Records}
	raw, err := json.Marshal(k)
	for ; err == nil && len(raw) > MaxFile; raw, err = json.Marshal(k) {
		k.Records = k.Records[(len(k.Records)+1)/2:]
	}
	if err != nil {
		return fmt.Errorf("keep records: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("keep records: %w", err)
	}
	file := entry{at: r.now().Truncate(time.Millisecond), id: n.ID, owner: digest(n.Owner), name: digest(n.Name)}
	if err := durable.Write(filepath.Join(r.dir, file.String()), raw, durable.Options{Mode: 0o600}); err != nil {
		return fmt.Errorf("keep records: %w", err)
	}
	return r.sweepLocked(file)
}

// sweepLocked removes what is too old or too much, and what newest replaces.
func (r *Records) sweepLocked(newest entry) error {
	all, err := r.list()
	if err != nil {
		return err
	}
	var errs []error
	owners := map[string]int{}
	for i, e := range all { // the newest first
		owners[e.owner]++
		replaced := e.id == newest.id && e.String() != newest.String()
		if replaced || i >= InAll || owners[e.owner] > PerOwner || r.now().Sub(e.at) > Age {
			if err := os.Remove(filepath.Join(r.dir, e.String())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Kept implements sandbox.NetRecords.
func (r *Records) Kept(_ context.Context, owner, ref string, anyone bool) ([]netlog.Record, error) {
	all, err := r.list()
	if err != nil {
		return nil, err
	}
	own, name := digest(owner), digest(ref)
	i := slices.IndexFunc(all, func(e entry) bool {
		mine := e.owner == own
		return r.now().Sub(e.at) <= Age && (e.id == ref && (mine || anyone) || e.name == name && mine)
	})
	if i < 0 {
		return nil, sandbox.Errorf(sandbox.NotFound, "no records of %q", ref)
	}
	f, err := os.Open(filepath.Join(r.dir, all[i].String()))
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	defer f.Close()
	var k kept
	raw, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil {
		err = json.Unmarshal(raw, &k)
	}
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	return k.Records, nil
}

// list returns what is there, the newest first. Files of other names are not ours.
func (r *Records) list() ([]entry, error) {
	files, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var all []entry
	for _, f := range files {
		if e, ok := parse(f.Name()); ok {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.id, b.id)) })
	return all, nil
}

// entry is what a file's name says.
type entry struct {
	at              time.Time
	id, owner, name string // the latter two as digests
}

// validID reports whether s can be part of a file's name, as every sandbox's ID can.
func validID(s string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789_"
	return s != "" && len(s) <= 64 && strings.Trim(s, plain) == ""
}

func (e entry) String() string {
	return strings.Join([]string{strconv.FormatInt(e.at.UnixMilli(), 10), e.id, e.owner, e.name, "json"}, ".")
}

func parse(file string) (entry, bool) {
	p := strings.Split(file, ".")
	if len(p) != 5 || p[4] != "json" || !validID(p[1]) {
		return entry{}, false
	}
	ms, err := strconv.ParseInt(p[0], 10, 64)
	return entry{at: time.UnixMilli(ms), id: p[1], owner: p[2], name: p[3]}, err == nil
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}

// Package mirror shows the records of pods to tools that read files: pods.json, of all pods of a
// runtime directory, and spawned_pods.json, of a pod's children. A file is written whole under
// another name and renamed, under a lock of its own, so that readers find the one of before or
// the new one.
//
// The records' one truth is the store: what somebody writes into a mirror counts for nothing, and
// the next change replaces it.
package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// The names of the files, and what is added to one for its lock.
const (
	PodsFile    = "pods.json"
	SpawnedFile = "spawned_pods.json"
	lockSuffix  = ".lock"
)

const (
	maxFile  = 64 << 20              // bytes of a mirror that is read
	retry    = 10 * time.Millisecond // between two attempts at a lock
	patience = 2 * time.Second       // for a lock, altogether
)

// Allocation is a pod in pods.json.
type Allocation struct {
	PodName       string       `json:"pod_name"`
	PID           int          `json:"pid"` // of its parent, as long as it has none of its own
	Socket        string       `json:"socket"`
	ScopeAllow    []scope.Rule `json:"scope_allow"`
	ScopeDeny     []scope.Rule `json:"scope_deny"`
	DelegatedFrom *string      `json:"delegated_from"`
	SegmentID     *string      `json:"segment_id"`
}

// Table is pods.json.
type Table struct {
	Allocations []Allocation `json:"allocations"`
}

// Find returns the allocation of a pod; nil: there is none.
func (t Table) Find(name string) *Allocation {
	for i := range t.Allocations {
		if t.Allocations[i].PodName == name {
			return &t.Allocations[i]
		}
	}
	return nil
}

// Spawned is a child in spawned_pods.json.
type Spawned struct {
	PodName         string       `json:"pod_name"`
	SocketPath      string       `json:"socket_path"`
	ScopeDelegated  []scope.Rule `json:"scope_delegated"`
	CallbackAddress string       `json:"callback_address"`
}

// TableOf is what pods.json says of records.
func TableOf(pods []record.Pod) Table {
	pids := map[string]int{}
	for _, p := range pods {
		pids[p.Name] = p.Process.PID
	}
	t := Table{Allocations: make([]Allocation, 0, len(pods))}
	for _, p := range pods {
		a := Allocation{
			PodName: p.Name, PID: p.Process.PID, Socket: p.Socket, ScopeAllow: list(p.Allow), ScopeDeny: list(p.Deny),
			DelegatedFrom: orNull(p.Parent), SegmentID: orNull(p.Segment),
		}
		if a.PID == 0 {
			a.PID = pids[p.Parent]
		}
		t.Allocations = append(t.Allocations, a)
	}
	return t
}

// SpawnedOf is what spawned_pods.json says of a pod's children: those whose task is on its way.
func SpawnedOf(children []record.Pod) []Spawned {
	out := make([]Spawned, 0, len(children))
	for _, c := range children {
		if c.State != record.Reserved {
			out = append(out, Spawned{PodName: c.Name, SocketPath: c.Socket, ScopeDelegated: list(c.Allow), CallbackAddress: c.Callback})
		}
	}
	return out
}

func list(rules []scope.Rule) []scope.Rule {
	if rules == nil {
		return []scope.Rule{} // not null
	}
	return rules
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Write replaces a mirror in a directory that only the user can write to.
func Write(ctx context.Context, clock sandbox.Clock, path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	lock, err := take(ctx, clock, path)
	if err != nil {
		return err
	}
	defer lock.Close()
	return durable.Write(path, append(b, '\n'), durable.Options{})
}

// Shown reports whether a directory shows a pod's children.
func Shown(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, SpawnedFile))
	return err == nil
}

// take locks a mirror. Who holds it may be anybody who reads: it is waited for, and not for long.
func take(ctx context.Context, clock sandbox.Clock, path string) (*home.Lock, error) {
	end := clock.Now().Add(patience)
	for {
		lock, err := home.TakeLock(path + lockSuffix)
		if sandbox.KindOf(err) != sandbox.Conflict || !clock.Now().Before(end) {
			return lock, err
		}
		select {
		case <-clock.After(retry):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Guard is pods.json as it is as long as the guard is open: nobody writes it meanwhile.
type Guard struct {
	lock  *home.Lock
	table Table
}

// Open locks and reads pods.json. One that is not there, or is empty, has no pods.
func Open(ctx context.Context, clock sandbox.Clock, path string) (*Guard, error) {
	lock, err := take(ctx, clock, path)
	if err != nil {
		return nil, err
	}
	g := &Guard{lock: lock}
	b, err := read(path)
	if err == nil {
		g.table, err = Parse(b)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return g, nil
}

// Data is what the file says.
func (g *Guard) Data() Table { return g.table }

// Close lets others write.
func (g *Guard) Close() error { return g.lock.Close() }

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("I/O error on %s: %w", filepath.Base(path), err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("I/O error on %s: %w", filepath.Base(path), err)
	}
	return b, nil
}

// Parse reads pods.json. Nothing is an empty table.
func Parse(b []byte) (Table, error) {
	var t Table
	if len(b) == 0 {
		return t, nil
	}
	if err := strict.Unmarshal(b, &t); err != nil {
		return Table{}, fmt.Errorf("%s parse error: %w", PodsFile, err)
	}
	return t, nil
}

// ReadSpawned reads spawned_pods.json.
func ReadSpawned(path string) ([]Spawned, error) {
	b, err := read(path)
	if err != nil || len(b) == 0 {
		return nil, err
	}
	var out []Spawned
	if err := strict.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("%s parse error: %w", SpawnedFile, err)
	}
	return out, nil
}

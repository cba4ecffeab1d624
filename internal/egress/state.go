package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Names below a gate's directory.
const (
	fileState   = "gate.json"
	fileSocket  = "control.sock"
	fileOffers  = "offers.sock"
	fileLogA    = "log-a.jsonl"
	fileLogB    = "log-b.jsonl"
	fileCrash   = "crash.log" // what a gate says that ends by a fault of its own
	dirRoot     = "root"      // empty: what a gate sees of the file system
	logBytes    = 8 << 20
	privateMode = 0o600
)

// state is what is kept of a gate. It holds the key of the sandbox's CA, and
// no secret.
type state struct {
	Placeholders map[string]string `json:"placeholders"`
	Cert         string            `json:"cert"`
	Key          string            `json:"key"`
	Process      procid.ID         `json:"process,omitzero"` // of the gate that runs
	Groups       []string          `json:"groups,omitempty"` // files of the instance's control groups
}

var validID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9_]{1,64}$`) })

// dir returns a gate's directory. IDs are ours, but they come back from a
// database and over the wire: nothing else becomes a path.
func (g *Gates) dir(id string) (string, error) {
	if !validID().MatchString(id) {
		return "", sandbox.Errorf(sandbox.Invalid, "sandbox id %q: not one of ours", id)
	}
	return filepath.Join(g.opts.State, "gates", id), nil
}

// load reads a gate's state; the zero one where there is none.
func load(dir string) (state, error) {
	raw, err := os.ReadFile(filepath.Join(dir, fileState))
	if errors.Is(err, os.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return state{}, fmt.Errorf("read %s: %w", fileState, err)
	}
	return s, nil
}

// update changes what is kept of a gate, and returns it.
func (one *gate) update(change func(*state)) (state, error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	change(&one.state)
	return one.state, one.state.save(one.dir)
}

// save replaces a gate's state.
func (s state) save(dir string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := durable.Write(filepath.Join(dir, fileState), raw, durable.Options{}); err != nil {
		return fmt.Errorf("write %s: %w", fileState, err)
	}
	return nil
}

// Gates' ids are above those of instances (see package process) and within what
// systemd keeps for containers (up to 1,879,048,191).
const (
	firstUID = 1_862_000_000
	uidCount = 17_000_000
)

// uidOf is whom the gate of a sandbox runs as: somebody whom nothing belongs
// to. Two may share one: a gate can't be traced, and starts nothing.
func uidOf(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return firstUID + h.Sum32()%uidCount
}

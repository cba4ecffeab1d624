package boxrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// mark is what is kept of one workspace over lives of the daemon: what it may
// never go behind. Grants are not: they are short, and a host renews them.
type mark struct {
	Instance   string `json:"instance"`
	Workspace  string `json:"workspace"`
	Generation int64  `json:"generation,omitempty"` // the newest seen
	Revision   int64  `json:"revision,omitempty"`   // the newest of a grant or revocation
	Revoked    int64  `json:"revoked,omitempty"`    // grants up to this one are void
	Granted    bool   `json:"granted,omitempty"`    // Revision is a grant's, with these limits
	Sessions   int    `json:"sessions,omitempty"`
	Processes  int    `json:"processes,omitempty"`
}

// ledgerSlack is how many lines a ledger may have beyond twice what they say.
const ledgerSlack = 1024

// ledger is a file of marks, one a line, of which the last of a workspace
// counts. A nil file keeps nothing.
type ledger struct {
	path string

	mu    sync.Mutex
	f     *os.File
	lines int
	torn  bool // a line may be there in part
	marks map[workspace]mark
}

// openLedger reads a ledger, and makes one where there is none. The last line
// may be torn, by a machine that went down in the middle of it; anything else
// that is no mark is an error: without it nothing would keep an older
// generation out.
func openLedger(path string) (*ledger, []mark, error) {
	l := &ledger{path: path, marks: map[workspace]mark{}}
	if path == "" {
		return l, nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the ledger of box generations: %w", err)
	}
	all := bytes.SplitAfter(b, []byte("\n"))
	for i, line := range all {
		if len(line) == 0 {
			continue
		}
		var m mark
		if err := json.Unmarshal(line, &m); err != nil {
			if i == len(all)-1 {
				break
			}
			return nil, nil, sandbox.Errorf(sandbox.Internal, "%s: line %d is damaged", path, i+1).
				WithHint("it keeps older placements of workspaces out; where there are none, remove the file")
		}
		l.marks[workspace{m.Instance, m.Workspace}] = m
	}
	if err := l.rewriteLocked(); err != nil {
		return nil, nil, err
	}
	out := make([]mark, 0, len(l.marks))
	for _, m := range l.marks {
		out = append(out, m)
	}
	return l, out, nil
}

// save returns when m is on the disk.
func (l *ledger) save(m mark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return nil
	}
	if l.f == nil {
		return errors.New("the ledger of box generations is closed")
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if l.torn {
		if err := l.rewriteLocked(); err != nil {
			return err
		}
		l.torn = false
	}
	_, err = l.f.Write(append(line, '\n'))
	if err == nil {
		err = l.f.Sync()
	}
	if err != nil {
		l.torn = true
		return fmt.Errorf("write the ledger of box generations: %w", err)
	}
	l.marks[workspace{m.Instance, m.Workspace}] = m
	if l.lines++; l.lines > 2*len(l.marks)+ledgerSlack {
		return l.rewriteLocked()
	}
	return nil
}

// rewriteLocked replaces the file by one that has each workspace once.
func (l *ledger) rewriteLocked() error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, m := range l.marks {
		if err := e.Encode(m); err != nil {
			return err
		}
	}
	fail := func(err error) error { return fmt.Errorf("write the ledger of box generations: %w", err) }
	f, err := os.CreateTemp(filepath.Dir(l.path), ".box-ledger-*")
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(b.Bytes())
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), l.path)
	}
	if err != nil {
		return fail(errors.Join(err, f.Close(), os.Remove(f.Name())))
	}
	if l.f != nil {
		_ = l.f.Close() // what it had is in f
	}
	l.f, l.lines = f, len(l.marks)
	return nil
}

func (l *ledger) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

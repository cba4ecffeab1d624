package langbot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/durable"
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

func (m mark) of() workspace { return workspace{m.Instance, m.Workspace} }

// keeper keeps marks. It may be asked for several workspaces' at once, and for
// one's in the order of its changes.
type keeper interface {
	// save returns when m is on the disk.
	save(m mark) error
}

// noLedger keeps nothing.
type noLedger struct{}

func (noLedger) save(mark) error { return nil }

// ledger is a file of marks, one a line, and a directory beside it of those that
// changed since, each in a file of its own: no workspace's waits for another's,
// and none is ever there in part. The file takes in the directory's when it is
// opened.
type ledger struct{ dir string }

const maxMark = 16 << 10 // bytes of one in a file of its own

// openLedger reads a ledger, and makes one where there is none. A line of the
// file may be torn at its end, by a machine that went down in the middle of it;
// anything else that is no mark is an error: without it nothing would keep an
// older generation out.
func openLedger(path string) (*ledger, []mark, error) {
	l := &ledger{dir: path + ".d"}
	fail := func(err error) (*ledger, []mark, error) {
		if _, ok := errors.AsType[*sandbox.Error](err); ok {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("read the ledger of box generations: %w", l.blame(err))
	}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	marks, err := parseMarks(path, b)
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fail(err)
	}
	names, err := l.take(marks)
	if err != nil {
		return fail(err)
	}
	all := slices.Collect(maps.Values(marks))
	if len(names) > 0 {
		// What a full disk leaves in the directory is read the next time too.
		if err = l.fold(path, all, names); sandbox.IsDiskFull(err) {
			err = nil
		}
	} else {
		err = durable.SyncDir(filepath.Dir(path)) // of which l.dir is new, perhaps
	}
	if err != nil {
		return fail(err)
	}
	return l, all, nil
}

// parseMarks reads a file of marks, of which the last of a workspace counts.
func parseMarks(path string, b []byte) (map[workspace]mark, error) {
	marks := map[workspace]mark{}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		var m mark
		if err := json.Unmarshal(line, &m); err != nil {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			return nil, damaged("%s: line %d is damaged", path, n)
		}
		marks[m.of()] = m
	}
	return marks, nil
}

func damaged(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Internal, format, args...).
		WithHint("it keeps older placements of workspaces out; where there are none, remove the file")
}

// take puts the directory's marks in the place of older ones, and returns its
// files' names. What never became whole is removed.
func (l *ledger) take(marks map[workspace]mark) (names []string, err error) {
	if err := durable.Sweep(l.dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(l.dir, e.Name())
		m, err := readMark(path)
		if err != nil {
			return nil, err
		}
		if fileOf(m) != e.Name() {
			return nil, damaged("%s: it is of another workspace", path)
		}
		marks[m.of()] = m
		names = append(names, e.Name())
	}
	return names, nil
}

func readMark(path string) (m mark, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMark+1))
	if err != nil {
		return m, err
	}
	if len(b) > maxMark || json.Unmarshal(b, &m) != nil {
		return m, damaged("%s: it is damaged", path)
	}
	return m, nil
}

// fold writes all marks to the file, and then removes the directory's. Where it
// ends in between, those are there twice, and the same.
func (l *ledger) fold(path string, all []mark, names []string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, m := range all {
		if err := e.Encode(m); err != nil {
			return err
		}
	}
	if err := l.write(path, b.Bytes()); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(l.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// fileOf is the name of a mark's own file.
func fileOf(m mark) string {
	sum := sha256.Sum256([]byte(m.Instance + "\x00" + m.Workspace))
	return hex.EncodeToString(sum[:]) + ".json"
}

func (l *ledger) save(m mark) error {
	line, err := json.Marshal(m)
	if err == nil {
		err = l.write(filepath.Join(l.dir, fileOf(m)), append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the ledger of box generations: %w", l.blame(err))
	}
	return nil
}

// write puts a file in the place of another. Where it is cut off, what there is
// of it is in the directory.
func (l *ledger) write(path string, content []byte) error {
	return durable.Write(path, content, durable.Options{Temp: l.dir})
}

// blame names the disk where it is to blame.
func (l *ledger) blame(err error) error { return sandbox.DiskError(err, "the disk of "+l.dir) }

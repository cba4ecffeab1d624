package hold

import (
	"os"
	"path/filepath"
	"strings"
)

// marks is a directory with a symbolic link for each image that is shown: its name, and to
// its mark. Where a process is killed they stay, and tell the next one which images are dead.
// A mark that a full disk has no room for is missed by nobody but that.
type marks string

// mark says which connection of an image is shown, and to whom it belongs.
type mark struct{ id, label string }

func (m marks) set(name string, of mark) {
	m.remove(name)
	_ = os.Symlink(of.id+" "+of.label, filepath.Join(string(m), name))
}

func (m marks) remove(name string) { _ = os.Remove(filepath.Join(string(m), name)) }

// read returns the marks by the names.
func (m marks) read() map[string]mark {
	found := map[string]mark{}
	entries, _ := os.ReadDir(string(m)) // of a directory that can't be read nothing is known
	for _, e := range entries {
		if text, err := os.Readlink(filepath.Join(string(m), e.Name())); err == nil && strings.HasPrefix(e.Name(), namePrefix) {
			id, label, ok := strings.Cut(text, " ")
			if !ok { // an older version's, which is of a label alone
				id, label = "", text
			}
			found[e.Name()] = mark{id: id, label: label}
		}
	}
	return found
}

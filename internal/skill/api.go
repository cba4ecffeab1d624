package skill

import (
	"context"
	"io"
	"os"
)

// DefaultSuffix is the end of the name that an archive's package gets where
// its caller does not say.
const DefaultSuffix = "upload"

// Outside opens a directory of the host that is not in the store, at an
// absolute path, if the caller may use what is there. A nil Outside allows
// nothing.
type Outside func(path string) (*os.Root, error)

// FileQuery says which of a skill's files Files lists.
type FileQuery struct {
	Path   string // a directory below the package; "" and ".": the package itself
	Hidden bool   // with names that begin with a dot
	Max    int    // entries, 1 to 1000 (more is cut to that); 0: 200
}

// ZipQuery says what of an archive is meant, and how it is to be named.
type ZipQuery struct {
	Filename string // the archive's: packages are named after it
	Subdir   string // below the archive's top; "": all of it
	Suffix   string // the end of the packages' names; "": none
	// Paths choose from several packages, as a preview's source_path has
	// them. Empty is enough where there is one.
	Paths []string
}

// Placed is a package as it is to be in a sandbox, at
// /workspace/.skills/Name.
type Placed struct {
	Name string // 1 to 64 letters, digits, - and _
	Dir  string // where in the store: a relative path with slashes
	Mode string // request.ReadOnly or request.Writable
}

// Guest is what bringing packages needs of a sandbox's agent.
// *agent.Guest has it.
type Guest interface {
	// Replace puts a tar's entries into a new package, owner's, which takes the
	// place of the one of that name in one step. What was there gets the name
	// keep, or is removed where that is "". Where there is no place for
	// packages, that is agent.ErrNotThere.
	Replace(ctx context.Context, name, owner, keep string, tar io.Reader) error
	// Fetch hands a tar of a package to take, without entries of the names of
	// except. A package that is not there is agent.ErrNotThere.
	Fetch(ctx context.Context, name string, except []string, take func(io.Reader) error) error
	// Remove removes a package; one that is not there is no error.
	Remove(ctx context.Context, name string) error
	// Names lists the packages.
	Names(ctx context.Context) ([]string, error)
}

// Taken says what became of a package that was taken back.
type Taken struct {
	Changed  bool // the store has now what the sandbox had
	Conflict bool // both had changed: the store's stays, the sandbox's is kept beside it
	Notices  []string
}

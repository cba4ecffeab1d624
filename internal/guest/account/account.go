// Package account says who a user of the guest is: it reads etc/passwd and
// etc/group below a root, and the user that a request names.
//
// Both files belong to the guest and are hostile. They are opened below the
// root, which links don't lead out of, must be regular files of at most 1 MiB, and are
// never handed to the C library or to a name service. An id that the kernel
// takes for "no change" is refused. The package switches to nobody and checks
// no permission: that is the caller's part.
package account

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// The users that exist whatever the guest's files say.
const (
	User = "user" // uid and gid 1000, whom commands run as by default
	Root = "root" // uid and gid 0

	UserID = 1000 // of User
)

// Limits of what is read from a guest.
const (
	maxFile   = 1 << 20 // bytes of passwd or group
	maxName   = 256     // bytes of a user's name
	maxPath   = 4096    // bytes of a home or a shell
	maxGroups = 256     // supplementary groups of one user
)

const (
	userHome     = "/home/user"
	rootHome     = "/root"
	defaultShell = "/bin/sh"
)

// ErrUnknown is the cause of an error that Lookup returns for a user whom
// the guest does not have.
var ErrUnknown = errors.New("no such user")

// Account is a user of the guest.
type Account struct {
	Name     string
	UID, GID uint32
	Groups   []uint32 // supplementary; without GID, sorted
	Home     string   // absolute; "/" where the guest names none
	Shell    string   // absolute; "/bin/sh" where the guest names none
}

// Lookup finds the user called name in the guest whose files are below root. "user" and
// "root" always exist and always have the ids 1000 and 0: the guest's files decide their
// home, shell and groups, never who they are. A number is the user with that id, with or
// without an entry. For any other name that is not there the error wraps ErrUnknown.
func Lookup(root, name string) (Account, error) {
	if err := checkName(name); err != nil {
		return Account{}, err
	}
	passwd, err := read(root, "etc/passwd")
	if err != nil {
		return Account{}, fmt.Errorf("look up user %q: %w", name, err)
	}
	group, err := read(root, "etc/group")
	if err != nil {
		return Account{}, fmt.Errorf("look up user %q: %w", name, err)
	}
	return find(name, passwd, group)
}

// find is Lookup without the files.
func find(name, passwd, group string) (Account, error) {
	a, err := parseUser(passwd, name)
	if b, ok := builtIn(name); ok {
		if err != nil || a.UID != b.UID {
			a = b
		}
		a.GID = b.GID
	} else if id, nerr := parseID(name); err != nil && nerr == nil {
		// Images name users by number, listed or not.
		a, err = parseUID(passwd, id)
		if errors.Is(err, ErrUnknown) {
			a, err = Account{Name: name, UID: id, GID: id, Home: "/", Shell: defaultShell}, nil
		}
	}
	if err != nil && a.Name == "" {
		return Account{}, fmt.Errorf("look up user %q: %w", name, err)
	}
	if a.Groups, err = parseGroups(group, a.Name, a.GID); err != nil {
		return Account{}, fmt.Errorf("look up user %q: %w", name, err)
	}
	return a, nil
}

func builtIn(name string) (Account, bool) {
	switch name {
	case User:
		return Account{Name: User, UID: UserID, GID: UserID, Home: userHome, Shell: defaultShell}, true
	case Root:
		return Account{Name: Root, Home: rootHome, Shell: defaultShell}, true
	}
	return Account{}, false
}

// checkName refuses what could not be a field of passwd.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("look up user: the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("look up user: the name is longer than %d bytes", maxName)
	case !validName(name):
		return fmt.Errorf("look up user %q: %w", name, ErrUnknown)
	}
	return nil
}

// validName reports whether s is printable ASCII without what passwd and
// terminals give a meaning to.
func validName(s string) bool {
	if s == "" || len(s) > maxName || strings.ContainsAny(s[:1], "-+") {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == ':' || c == ',' || c == '/' {
			return false
		}
	}
	return true
}

// read returns a file below root, where links in its way end too, and nothing
// for one that is not there. A fifo or device in its place is refused before
// it is read.
func read(root, name string) (string, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(dir)
	fd, err := beneath.OpenInRoot(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("stat %s: %w", name, err)
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return string(b), nil
}

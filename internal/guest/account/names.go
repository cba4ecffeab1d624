package account

import (
	"errors"
	"strconv"
	"strings"
)

// Names maps ids to names, for showing who owns a file. The zero value knows
// the two users that always exist.
type Names struct {
	users, groups map[uint32]string
}

// LoadNames reads the names of the guest whose files are below root. A name
// that is not printable ASCII is left out, so that its id is shown. The
// names that could be read are returned along with an error.
func LoadNames(root string) (Names, error) {
	passwd, uerr := read(root, "etc/passwd")
	group, gerr := read(root, "etc/group")
	return Names{users: parseNames(passwd), groups: parseNames(group)}, errors.Join(uerr, gerr)
}

// User returns the name of uid, or its digits.
func (n Names) User(uid uint32) string { return name(n.users, uid) }

// Group returns the name of gid, or its digits.
func (n Names) Group(gid uint32) string { return name(n.groups, gid) }

func name(names map[uint32]string, id uint32) string {
	if s, ok := names[id]; ok {
		return s
	}
	switch id {
	case 0:
		return Root
	case UserID:
		return User
	}
	return strconv.FormatUint(uint64(id), 10)
}

// parseNames reads the first and third field of each line; the first line
// with an id wins. passwd and group agree on those.
func parseNames(text string) map[uint32]string {
	names := make(map[uint32]string)
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		_, rest, _ = strings.Cut(rest, ":")
		digits, _, ok := strings.Cut(rest, ":")
		if !ok || !validName(name) {
			continue
		}
		id, err := parseID(digits)
		if err != nil {
			continue
		}
		if _, ok := names[id]; !ok {
			names[id] = name
		}
	}
	return names
}

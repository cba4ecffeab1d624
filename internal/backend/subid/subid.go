// Package subid reads which subordinate ids a user may map: the ranges of
// /etc/subuid and /etc/subgid (subuid(5)).
//
// It refuses ranges that begin at 0, which would be root's own.
package subid

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// maxFile bounds what is read of a file, in bytes.
const maxFile = 1 << 20

// Range is Count ids from First on.
type Range struct{ First, Count int }

// errNone says that no range is the user's, or none is large enough.
var errNone = errors.New("no range is the caller's")

// Find reads the file at path; see Parse.
func Find(path, name string, uid, count int) (Range, error) {
	f, err := os.Open(path)
	if err != nil {
		return Range{}, err
	}
	defer f.Close()
	return Parse(f, name, uid, count)
}

// Parse returns the first range of at least count ids that belongs to the
// user, whom a line may name or number. Other lines are passed over.
func Parse(r io.Reader, name string, uid, count int) (Range, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxFile))
	for lines.Scan() {
		owner, rest, ok := strings.Cut(lines.Text(), ":")
		if !ok || owner == "" || (owner != name && owner != strconv.Itoa(uid)) {
			continue
		}
		first, n, _ := strings.Cut(rest, ":")
		a, err1 := strconv.Atoi(first)
		c, err2 := strconv.Atoi(n)
		if err1 == nil && err2 == nil && a > 0 && c >= count {
			return Range{a, c}, nil
		}
	}
	return Range{}, errors.Join(lines.Err(), errNone)
}

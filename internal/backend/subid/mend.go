package subid

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// What may be given to users: the bounds that shadow's own tools keep to
// (login.defs(5)). Above, systemd and carboy as root have ids of their own.
const (
	leastFree = 100_000
	mostFree  = 600_100_000
)

// Lack says who needs subordinate ids, and what is missing for them.
type Lack struct {
	Root    string // of the machine's file system: "/"
	UID     int    // who needs them
	Count   int    // how many
	Tools   bool   // newuidmap and newgidmap are not installed
	Install string // the command that installs them
}

// Mend returns the command that, run by root, gives the user what is missing,
// and nothing more. The range that it names is in no line of /etc/subuid and
// /etc/subgid, and no account or group of the machine's is in it. What can't be
// read counts as empty; "" where nothing is missing.
func Mend(l Lack) string {
	var steps []string
	if l.Tools {
		steps = append(steps, l.Install)
	}
	login := l.login()
	var lack []string
	for _, name := range []string{"subuid", "subgid"} {
		if _, err := Find(filepath.Join(l.Root, "etc", name), login, l.UID, l.Count); err != nil {
			lack = append(lack, name)
		}
	}
	if len(lack) > 0 {
		first := l.free()
		if first == 0 {
			return ""
		}
		steps = append(steps, l.give(login, lack, first))
	}
	return strings.Join(steps, " && ")
}

// give is the command that adds a range to each of the files. One without a line
// in /etc/passwd, such as a directory service's, is unknown to usermod.
func (l Lack) give(login string, files []string, first int) string {
	if login == "" {
		var steps []string
		for _, name := range files {
			steps = append(steps, fmt.Sprintf("echo %d:%d:%d >> /etc/%s", l.UID, first, l.Count, name))
		}
		return strings.Join(steps, " && ")
	}
	words := []string{"usermod"}
	for _, name := range files {
		words = append(words, fmt.Sprintf("--add-%ss %d-%d", name, first, first+l.Count-1))
	}
	return strings.Join(append(words, shell.Word(login)), " ")
}

// login is the user's name in /etc/passwd, or "".
func (l Lack) login() string {
	for f := range l.lines("passwd") {
		if len(f) > 2 && f[0] != "" && f[2] == strconv.Itoa(l.UID) {
			return f[0]
		}
	}
	return ""
}

// free returns the first id of a range that nobody has; 0 where there is none.
func (l Lack) free() int {
	var taken []Range
	for _, name := range []string{"subuid", "subgid"} {
		for f := range l.lines(name) {
			if len(f) == 3 {
				taken = appendRange(taken, f[1], f[2])
			}
		}
	}
	for _, name := range []string{"passwd", "group"} {
		for f := range l.lines(name) {
			if len(f) > 2 {
				taken = appendRange(taken, f[2], "1")
			}
		}
	}
	slices.SortFunc(taken, func(a, b Range) int { return a.First - b.First })
	first := leastFree
	for _, r := range taken {
		if r.First < first+l.Count && first < r.First+r.Count {
			first = r.First + r.Count
		}
	}
	if first+l.Count > mostFree {
		return 0
	}
	return first
}

func appendRange(to []Range, first, count string) []Range {
	a, err1 := strconv.ParseUint(first, 10, 32)
	n, err2 := strconv.ParseUint(count, 10, 32)
	if err1 != nil || err2 != nil || n == 0 {
		return to
	}
	return append(to, Range{int(a), int(n)})
}

// lines yields the fields of each line of a file below /etc.
func (l Lack) lines(name string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		f, err := os.Open(filepath.Join(l.Root, "etc", name))
		if err != nil {
			return
		}
		defer f.Close()
		for lines := bufio.NewScanner(io.LimitReader(f, maxFile)); lines.Scan(); {
			if !yield(strings.Split(lines.Text(), ":")) {
				return
			}
		}
	}
}

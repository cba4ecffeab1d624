// Package mountinfo reads the kernel's list of mounts, /proc/PID/mountinfo, as
// proc_pid_mountinfo(5) has it. It opens nothing, and says of each line
// whether it is one; who reads the file bounds it.
package mountinfo

import (
	"strconv"
	"strings"
)

// Mount is a line of a mountinfo. Names are as they were before the kernel
// escaped them.
type Mount struct {
	Device  string   // MAJOR:MINOR of the file system
	Root    string   // what of the file system is seen there
	Point   string   // where
	Options []string // of the mount
	Type    string   // the file system's
	Source  string   // what it was mounted from; "" where that had no name
	Super   []string // options of the file system
}

// Parse reads a line, with its end or without. ok is false for what is none.
func Parse(line string) (_ Mount, ok bool) {
	// One blank is between two fields, and none in any: a source without a name
	// leaves two together, and the lone dash ends the fields that may be there.
	left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
	l, r := strings.Split(left, " "), strings.Split(right, " ")
	if !ok || len(l) < 6 || len(r) < 3 {
		return Mount{}, false
	}
	return Mount{
		Device: l[2], Root: unescape(l[3]), Point: unescape(l[4]), Options: strings.Split(l[5], ","),
		Type: unescape(r[0]), Source: unescape(r[1]), Super: strings.Split(r[2], ","),
	}, true
}

// unescape undoes the kernel's octal escapes: \040 is a space.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

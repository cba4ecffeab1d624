package cgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// mount is one mounted cgroup tree.
type mount struct {
	version int      // 1 or 2
	root    string   // the group that shows at point, as /proc/self/cgroup names it
	point   string   // where it is mounted
	options []string // version 1: its controllers, among other words
	ro      bool
}

// maxProcFile bounds what is read of /proc/self/mountinfo and of group files.
const maxProcFile = 8 << 20

// parseMounts picks the cgroup trees out of a mountinfo file, in its order.
func parseMounts(info []byte) ([]mount, error) {
	var out []mount
	sc := bufio.NewScanner(bytes.NewReader(info))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		m, ok, err := parseMount(sc.Text())
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, m)
		}
	}
	return out, sc.Err()
}

// parseMount reads one line: fixed fields, any number of optional ones, a
// lone dash, then the file system's type, source and options.
func parseMount(line string) (mount, bool, error) {
	f := strings.Fields(line)
	dash := -1
	for i := 6; i < len(f); i++ {
		if f[i] == "-" {
			dash = i
			break
		}
	}
	if dash < 0 || len(f) < dash+4 {
		return mount{}, false, fmt.Errorf("mountinfo: malformed line of %d fields", len(f))
	}
	m := mount{root: unescape(f[3]), point: unescape(f[4]), options: strings.Split(f[dash+3], ",")}
	switch f[dash+1] {
	case "cgroup":
		m.version = 1
	case "cgroup2":
		m.version = 2
	default:
		return mount{}, false, nil
	}
	m.ro = hasWord(f[5], "ro") || hasWord(f[dash+3], "ro")
	return m, path.IsAbs(m.point), nil
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// unescape undoes the octal escapes of mountinfo: \040 is a space.
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

// parseOwn returns the caller's group in the version 2 tree from a
// /proc/self/cgroup file, or "" where there is none.
func parseOwn(b []byte) string {
	for line := range bytes.Lines(b) {
		if p, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("0::")); ok {
			// The kernel marks a group that was removed under its processes.
			return strings.TrimSuffix(string(p), " (deleted)")
		}
	}
	return ""
}

// parsePIDs reads a cgroup.procs file. A process of another pid namespace
// shows as 0 and is left out.
func parsePIDs(b []byte) ([]int, error) {
	var out []int
	for f := range bytes.FieldsSeq(b) {
		n, err := strconv.ParseUint(string(f), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("cgroup.procs: malformed process number")
		}
		if n > 0 {
			out = append(out, int(n))
		}
	}
	return out, nil
}

// parseKeyed finds the value of key in a file of "key value" lines.
func parseKeyed(b []byte, key string) (uint64, bool) {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 2 && string(f[0]) == key {
			n, err := strconv.ParseUint(string(f[1]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// parseNumber reads a file that holds one number.
func parseNumber(b []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("malformed number")
	}
	return n, nil
}

package cgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
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
		line, ok := mountinfo.Parse(sc.Text())
		if !ok {
			return nil, fmt.Errorf("mountinfo: malformed line of %d fields", len(strings.Fields(sc.Text())))
		}
		version := map[string]int{"cgroup": 1, "cgroup2": 2}[line.Type]
		if version > 0 && path.IsAbs(line.Point) {
			ro := slices.Contains(line.Options, "ro") || slices.Contains(line.Super, "ro")
			out = append(out, mount{version: version, root: line.Root, point: line.Point, options: line.Super, ro: ro})
		}
	}
	return out, sc.Err()
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

package arch

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/uninstall"
)

// inState finds names that are put into the state directory: as they stand, or by a
// constant of the same package.
var (
	inState    = regexp.MustCompile(`(?:filepath\.Join\((?:[\w.]*\.(?:State|StateDir)|state), |openState\(|statedir\.Open\([\w.]+, )("[^"]+"|\w+)`)
	constantOf = regexp.MustCompile(`(?m)^\s*(?:const )?(\w+)\s*= "([^"]+)"`)
)

// stateNames are those of the host's packages, with where they stand.
func stateNames(files []goFile) map[string]string {
	consts, names := map[string]string{}, map[string]string{}
	for _, f := range files {
		for _, m := range matches(f, constantOf, `= "`) {
			consts[path.Dir(f.path)+"."+m[1]] = m[2]
		}
	}
	for _, f := range files {
		for _, m := range matches(f, inState, "filepath.Join(", "openState(", "statedir.Open(") {
			name := strings.Trim(m[1], `"`)
			if name == m[1] {
				if name = consts[path.Dir(f.path)+"."+m[1]]; name == "" {
					continue // a variable: of a name below one that is listed
				}
			}
			names[name] = f.path
		}
	}
	return names
}

// matches are those of a pattern in lines that have one of its words.
func matches(f goFile, pattern *regexp.Regexp, words ...string) (all [][]string) {
	for line := range strings.Lines(string(f.text)) {
		if has(line, words) {
			all = append(all, pattern.FindAllStringSubmatch(line, -1)...)
		}
	}
	return all
}

// TestStateIsRemoved: what is put into the state directory, carboy uninstall takes away.
func TestStateIsRemoved(t *testing.T) {
	var host []goFile
	for _, f := range handWritten(t) {
		// A diagnosis has a state directory of its own, for as long as it takes.
		if !strings.HasSuffix(f.path, "_test.go") && f.path != "cmd/carboy-daemon/doctor.go" && (within(f.path, "internal") || within(f.path, "cmd")) {
			host = append(host, f)
		}
	}
	names := stateNames(host)
	for name, where := range names {
		if !uninstall.Owns(name) {
			t.Errorf("%s puts %s into the state directory, which carboy uninstall would leave: name it in internal/uninstall/names.go", where, name)
		}
	}
	if len(names) < 8 {
		t.Errorf("only %v are found", names)
	}
	if uninstall.Owns("notes.txt") {
		t.Error("it would remove what is not carboy's")
	}
}

package project

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// A shape is what the value of a key is written as.
type shape struct {
	is    string // in words
	kinds []unstable.Kind
}

var (
	aWord     = shape{"a word in quotes", []unstable.Kind{unstable.String}}
	aDuration = shape{"a duration in quotes", []unstable.Kind{unstable.String}}
	aSize     = shape{"a size in quotes", []unstable.Kind{unstable.String}}
	aList     = shape{"a list of words", []unstable.Kind{unstable.Array}}
	aTruth    = shape{"true or false, without quotes", []unstable.Kind{unstable.Bool}}
	aNumber   = shape{"a number without quotes", []unstable.Kind{unstable.Integer, unstable.Float}}
	aCount    = shape{"a whole number without quotes", []unstable.Kind{unstable.Integer}}
	aTable    = shape{"a table", []unstable.Kind{unstable.InlineTable, unstable.Table}}
)

// shapes are those of all keys that the file may have, each with an example.
var shapes = map[string]struct {
	shape
	example string
}{
	"image":          {aWord, `"debian:12"`},
	"template":       {aWord, `"node"`},
	"isolation":      {aWord, `"gvisor"`},
	"user":           {aWord, `"user"`},
	"read_only_root": {aTruth, "true"},
	"network":        {aWord, `"off"`},
	"allow":          {aList, `["npm"]`},
	"secrets":        {aList, `["NPM_TOKEN"]`},
	"caches":         {aList, `["npm"]`},
	"volumes":        {aList, `["data:/data"]`},
	"ports":          {aList, `["3000"]`},
	"env":            {aTable, `{ NODE_ENV = "test" }`},
	"env.*":          {aWord, `"test"`},
	"ttl":            {aDuration, `"30m"`},
	"limits":         {aTable, `{ memory = "2g" }`},
	"limits.cpus":    {aNumber, "2"},
	"limits.memory":  {aSize, `"512m"`},
	"limits.pids":    {aCount, "1024"},
	"limits.disk":    {aSize, `"8g"`},
}

// checkType refuses a value of another type than its key's, at the place where. A
// value is not repeated, but for a number that lacks its unit.
func checkType(where string, key []string, e *unstable.Node) error {
	name := strings.Join(key, ".")
	want, ok := shapes[name]
	if !ok {
		want = shapes["env.*"]
	}
	kind, value := e.Kind, (*unstable.Node)(nil)
	if kind == unstable.KeyValue {
		value = e.Value()
		kind = value.Kind
	}
	if slices.Contains(want.kinds, kind) && (kind != unstable.Array || allWords(value)) {
		return nil
	}
	if unit := want.is == aDuration.is || want.is == aSize.is; unit && kind == unstable.Integer {
		u := usage.Errorf("%s: %s: a number without a unit", where, name)
		if n, err := strconv.ParseInt(string(value.Data), 10, 64); err == nil && n > 0 && want.is == aDuration.is {
			return u.WithHint(`use "%ds"`, n)
		}
		return u.WithHint("use one such as %s", want.example)
	}
	return usage.Errorf("%s: %.80s: it is %s", where, shell.Word(name), want.is).WithHint("%.80s = %s", shell.Word(key[len(key)-1]), want.example)
}

// allWords reports whether a list holds words alone.
func allWords(list *unstable.Node) bool {
	for it := list.Children(); it.Next(); {
		if it.Node().Kind != unstable.String {
			return false
		}
	}
	return true
}

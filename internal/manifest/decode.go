package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/near"
	"github.com/carboy-sandbox/carboy/internal/text/term"
	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// maxEntries bounds each list and mapping of a file.
const maxEntries = 1000

// decoding fills a Go value from a tree, by the json tags, and notes where each thing is
// said: "remotes.app.url", "secrets[1]".
type decoding struct {
	file   string
	places map[string]Place
	*problems
}

func (d *decoding) at(n *tree.Node) Place { return Place{d.file, n.Line, n.Column} }

func keyAt(file string, p *tree.Pair) Place { return Place{file, p.Line, p.Column} }

func (d *decoding) value(n *tree.Node, to reflect.Value, path string) {
	switch to.Interface().(type) {
	case size:
		d.size(n, to, path)
		return
	case names:
		if n.Kind == tree.Text {
			n = &tree.Node{Kind: tree.List, Items: []*tree.Node{n}, Line: n.Line, Column: n.Column}
		}
	}
	switch to.Kind() { //nolint:exhaustive // the types have no others, and a test decodes all of them
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		d.value(n, to.Elem(), path)
	case reflect.Struct:
		if d.is(n, tree.Map, path) {
			d.fields(n, to, path)
		}
	case reflect.Map:
		if d.is(n, tree.Map, path) {
			d.entries(n, to, path)
		}
	case reflect.Slice:
		if d.is(n, tree.List, path) {
			d.items(n, to, path)
		}
	case reflect.String:
		// 443 is the port that it says, and 1.0 a version.
		if n.Kind == tree.Number || d.is(n, tree.Text, path) {
			to.SetString(n.Text)
		}
	case reflect.Bool:
		if d.is(n, tree.Bool, path) {
			to.SetBool(n.Text == "true")
		}
	default:
		d.number(n, to, path)
	}
}

// is reports whether a value is of its key's kind. A value is not repeated: it may be a
// secret at a wrong place.
func (d *decoding) is(n *tree.Node, kind tree.Kind, path string) bool {
	if n.Kind == kind {
		return true
	}
	what := path
	if what == "" {
		what = "the file"
	}
	hint := ""
	if strings.HasPrefix(path, "secrets[") && n.Kind == tree.Map {
		hint = "the name alone: carboy secret keeps values"
	}
	at := d.at(n)
	if key, ok := d.places[path]; ok && n.Kind == tree.Null {
		at = key // nothing is nowhere
	}
	d.add(at, hint, "%s: %s, where %s is wanted", what, n.Kind, kind)
	return false
}

func (d *decoding) fields(n *tree.Node, to reflect.Value, path string) {
	known := make([]string, to.NumField())
	for i := range known {
		known[i], _, _ = strings.Cut(to.Type().Field(i).Tag.Get("json"), ",")
	}
	d.pairs(n, path, func(p *tree.Pair, inner string) {
		i := slices.Index(known, p.Key)
		if i < 0 {
			d.unknown(p, path, known)
			return
		}
		d.value(p.Value, to.Field(i), inner)
	})
}

// unknown tells of a key that there is not, and which was meant.
func (d *decoding) unknown(p *tree.Pair, path string, known []string) {
	in := ""
	if path != "" {
		in = " in " + path
	}
	hint := "known are " + strings.Join(known, ", ")
	if n := near.Of(strings.ReplaceAll(strings.ToLower(p.Key), "-", "_"), known); n != "" {
		hint = "did you mean " + n + "?"
	}
	d.add(keyAt(d.file, p), hint, "unknown key %s%s", quoted(p.Key), in)
}

func (d *decoding) entries(n *tree.Node, to reflect.Value, path string) {
	to.Set(reflect.MakeMap(to.Type()))
	d.pairs(n, path, func(p *tree.Pair, inner string) {
		v := reflect.New(to.Type().Elem()).Elem()
		d.value(p.Value, v, inner)
		to.SetMapIndex(reflect.ValueOf(p.Key), v)
	})
}

// pairs calls yield with each pair of a mapping, once for each key.
func (d *decoding) pairs(n *tree.Node, path string, yield func(p *tree.Pair, inner string)) {
	if d.tooMany(n, len(n.Pairs), path) {
		return
	}
	seen := map[string]int{}
	for i := range n.Pairs {
		p := &n.Pairs[i]
		inner := p.Key
		if path != "" {
			inner = path + "." + p.Key
		}
		if first, twice := seen[p.Key]; twice {
			d.add(keyAt(d.file, p), "say it once", "%s is there twice: in line %d too", term.Escape(fmt.Sprintf("%.200s", inner)), first)
			continue
		}
		seen[p.Key] = p.Line
		d.places[inner] = keyAt(d.file, p)
		yield(p, inner)
	}
}

func (d *decoding) items(n *tree.Node, to reflect.Value, path string) {
	if d.tooMany(n, len(n.Items), path) || len(n.Items) == 0 {
		return // an empty list says what none does
	}
	to.Set(reflect.MakeSlice(to.Type(), len(n.Items), len(n.Items)))
	for i, item := range n.Items {
		inner := fmt.Sprintf("%s[%d]", path, i)
		d.places[inner] = d.at(item)
		d.value(item, to.Index(i), inner)
	}
}

func (d *decoding) tooMany(n *tree.Node, count int, path string) bool {
	if count > maxEntries {
		d.add(d.at(n), fmt.Sprintf("at most %d", maxEntries), "%s: %d are too many", path, count)
	}
	return count > maxEntries
}

func (d *decoding) size(n *tree.Node, to reflect.Value, path string) {
	if n.Kind != tree.Number && !d.is(n, tree.Text, path) {
		return
	}
	bytes, err := term.ParseSize(n.Text)
	if err != nil {
		d.add(d.at(n), "a number of bytes, or one with a unit: 512m, 4g", "%s: %s is no size", path, quoted(n.Text))
		return
	}
	to.SetInt(bytes)
}

func (d *decoding) number(n *tree.Node, to reflect.Value, path string) {
	if !d.is(n, tree.Number, path) {
		return
	}
	if to.CanFloat() {
		f, err := strconv.ParseFloat(n.Text, 64)
		if err != nil || !(f > 0 && f <= 1<<16) {
			d.add(d.at(n), "leave it out for the default", "%s: %s is no number above zero", path, quoted(n.Text))
			return
		}
		to.SetFloat(f)
		return
	}
	i, err := strconv.ParseInt(n.Text, 10, 64)
	if err != nil || i < 0 || to.OverflowInt(i) {
		d.add(d.at(n), "", "%s: %s is no whole number from zero on", path, quoted(n.Text))
		return
	}
	to.SetInt(i)
}

package project

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/near"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// File is what a project's file says. What is left at its zero it does not say.
type File struct {
	Image     word[image]       `toml:"image"`
	Template  word[template]    `toml:"template"`
	Isolation word[isolation]   `toml:"isolation"`
	User      word[user]        `toml:"user"`
	ReadOnly  bool              `toml:"read_only_root"`
	Network   word[network]     `toml:"network"`
	Allow     []word[allow]     `toml:"allow"`
	Secrets   []word[secret]    `toml:"secrets"`
	Caches    []word[tool]      `toml:"caches"`
	Volumes   []word[volume]    `toml:"volumes"`
	Ports     []word[port]      `toml:"ports"`
	Env       map[string]string `toml:"env"`
	TTL       duration          `toml:"ttl"`
	Limits    limits            `toml:"limits"`
}

type limits struct {
	CPUs   float64 `toml:"cpus"`
	Memory size    `toml:"memory"`
	PIDs   int64   `toml:"pids"`
	Disk   size    `toml:"disk"`
}

// maxList bounds each list of the file, and its variables.
const maxList = 64

// Parse reads the text of a file. An error names the file, the line and the column.
func Parse(t *Text) (*File, error) {
	if err := checkKeys(t); err != nil {
		return nil, err
	}
	var f File
	dec := toml.NewDecoder(bytes.NewReader(t.Bytes)).DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, explain(t.Path, err)
	}
	for _, l := range []struct {
		key string
		n   int
	}{{"allow", len(f.Allow)}, {"secrets", len(f.Secrets)}, {"caches", len(f.Caches)}, {"volumes", len(f.Volumes)}, {"ports", len(f.Ports)}, {"env", len(f.Env)}} {
		if l.n > maxList {
			return nil, usage.Errorf("%s: %s: %d are too many", shell.Word(t.Path), l.key, l.n).WithHint("at most %d", maxList)
		}
	}
	if f.Image.string != "" && f.Template.string != "" {
		return nil, usage.Errorf("%s: it has both image and template", shell.Word(t.Path)).WithHint("leave one of them out")
	}
	if l := f.Limits; l.PIDs < 0 || !(l.CPUs >= 0 && l.CPUs <= 1<<16) {
		return nil, usage.Errorf("%s: limits: below zero, or no number", shell.Word(t.Path)).WithHint("leave one out for its default")
	}
	return &f, f.checkEnv(t.Path)
}

// checkEnv refuses variables that no environment can hold. It repeats no value.
func (f *File) checkEnv(path string) error {
	for name, value := range f.Env {
		if name == "" || strings.ContainsAny(name, "= \t\r\n\x00") || strings.ContainsRune(value, 0) {
			return usage.Errorf("%s: env: %q can't be a variable", shell.Word(path), name)
		}
	}
	return nil
}

// explain says where in the file what is wrong.
func explain(path string, err error) error {
	at := func(e *toml.DecodeError) string {
		line, column := e.Position()
		return fmt.Sprintf("%s:%d:%d", shell.Word(path), line, column)
	}
	if e, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(e.Errors) > 0 {
		first := &e.Errors[0]
		return unknown(at(first), strings.Join(first.Key(), "."))
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		return usage.Errorf("%s: %.300s", at(e), strings.TrimPrefix(e.Error(), "toml: "))
	}
	return usage.Errorf("%s: %.300s", shell.Word(path), strings.TrimPrefix(err.Error(), "toml: "))
}

// checkKeys refuses keys that are none of the file's by every letter: what reads them
// into a File takes capitals for the same. It refuses values of a wrong type too: what
// reads them takes a number for a duration, and names types of the program's.
func checkKeys(t *Text) error {
	var p unstable.Parser
	p.Reset(t.Bytes)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		key, at := keyOf(&p, e)
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = key
		case unstable.KeyValue:
			key = append(slices.Clone(table), key...)
		}
		if err := checkKey(t.Path, key, e, at); err != nil {
			return err
		}
		if e.Kind != unstable.KeyValue || e.Value().Kind != unstable.InlineTable {
			continue
		}
		for it := e.Value().Children(); it.Next(); {
			in, at := keyOf(&p, it.Node())
			if err := checkKey(t.Path, append(slices.Clone(key), in...), it.Node(), at); err != nil {
				return err
			}
		}
	}
	return nil // what can't be parsed is told by who decodes it
}

// keyOf returns the parts of a key, and where it begins.
func keyOf(p *unstable.Parser, n *unstable.Node) (key []string, at unstable.Position) {
	if n.Kind != unstable.Table && n.Kind != unstable.ArrayTable && n.Kind != unstable.KeyValue {
		return nil, at
	}
	for it := n.Key(); it.Next(); {
		if key == nil {
			at = p.Shape(it.Node().Raw).Start
		}
		key = append(key, string(it.Node().Data))
	}
	return key, at
}

// checkKey refuses a key that is unknown, or has a value of another type than its own.
func checkKey(path string, key []string, e *unstable.Node, at unstable.Position) error {
	if len(key) == 0 {
		return nil
	}
	where := fmt.Sprintf("%s:%d:%d", shell.Word(path), at.Line, at.Column)
	if key[0] == "env" && len(key) <= 2 || slices.Contains(keys(), strings.Join(key, ".")) {
		return checkType(where, key, e)
	}
	return unknown(where, strings.Join(key, "."))
}

func unknown(at, key string) error {
	u := usage.Errorf("%s: unknown key %.80s", at, shell.Word(key))
	if n := near.Of(key, keys()); n != "" {
		return u.WithHint("did you mean %s?", n)
	}
	return u.WithHint("known are %s", strings.Join(keys(), ", "))
}

// keys are all that the file may have.
func keys() []string {
	var names []string
	t := reflect.TypeFor[File]()
	for i := range t.NumField() {
		key := t.Field(i).Tag.Get("toml")
		names = append(names, key)
		if l := t.Field(i).Type; l == reflect.TypeFor[limits]() {
			for j := range l.NumField() {
				names = append(names, key+"."+l.Field(j).Tag.Get("toml"))
			}
		}
	}
	slices.Sort(names)
	return names
}

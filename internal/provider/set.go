package provider

import (
	"embed"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/near"
)

//go:embed data/*.toml
var data embed.FS

// BuiltIn are the providers that carboy comes with, by name.
var builtIn = sync.OnceValues(func() ([]*Provider, error) {
	entries, err := data.ReadDir("data")
	if err != nil {
		return nil, err
	}
	var list []*Provider
	for _, e := range entries {
		b, err := data.ReadFile("data/" + e.Name())
		if err != nil {
			return nil, err
		}
		p, err := Parse(strings.TrimSuffix(e.Name(), ".toml"), b)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Internal, "agent %s: %w", e.Name(), err)
		}
		list = append(list, p)
	}
	return list, nil
})

// maxFiles bounds how many files of a directory are read.
const maxFiles = 100

// List are all providers by name: those that carboy comes with, and those of a user's
// directory, of which each takes the place of one of its name. A directory that is not
// there has none. A file with a mistake is left out, and so is the one whose place it
// takes; bad says of each what is wrong.
func List(dir string) (list []*Provider, bad []error) {
	own, err := builtIn()
	if err != nil {
		return nil, []error{err}
	}
	list = slices.Clone(own)
	names, err := userFiles(dir)
	if err != nil {
		bad = append(bad, err)
	}
	for _, file := range names {
		name := strings.TrimSuffix(file, ".toml")
		list = slices.DeleteFunc(list, func(o *Provider) bool { return o.Name == name })
		p, err := read(filepath.Join(dir, file))
		if err != nil {
			bad = append(bad, err)
			continue
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Provider) int { return strings.Compare(a.Name, b.Name) })
	return list, bad
}

// userFiles are the names of the files in a user's directory, in order.
func userFiles(dir string) (names []string, err error) {
	if dir == "" {
		return nil, nil
	}
	f, err := home.OpenTrustedDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unread(err)
	}
	defer f.Close()
	entries, err := f.Readdirnames(-1)
	if err != nil {
		return nil, unread(err)
	}
	slices.Sort(entries)
	for _, name := range entries {
		if strings.HasSuffix(name, ".toml") && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	if len(names) > maxFiles {
		return nil, sandbox.Errorf(sandbox.Invalid, "agents: %s has %d files", dir, len(names)).WithHint("at most %d", maxFiles)
	}
	return names, nil
}

// unread says why a file or directory of a user's can't be used.
func unread(err error) error {
	e := sandbox.Errorf(sandbox.Invalid, "agents: %w", err)
	if said, ok := errors.AsType[*sandbox.Error](err); ok {
		return e.WithHint("%s", said.Hint)
	}
	return e
}

// read reads a file of a user's directory. What it says is asked of it once.
func read(path string) (*Provider, error) {
	f, err := home.OpenTrusted(path)
	if err != nil {
		return nil, unread(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s: %w", path, err)
	}
	p, err := Parse(strings.TrimSuffix(filepath.Base(path), ".toml"), b)
	if err != nil {
		e := sandbox.Errorf(sandbox.Invalid, "%s: %w", path, err)
		if k, ok := errors.AsType[*unknownKey](err); ok && k.near != "" {
			return nil, e.WithHint("did you mean %s?", k.near)
		}
		return nil, e.WithHint("carboy agent show claude --toml is an example")
	}
	p.From, p.text = path, b
	return p, nil
}

// only reads the one file of that name; nil where there is none.
func only(dir, name string) (*Provider, error) {
	if !validName().MatchString(name) {
		return nil, nil
	}
	if dir != "" {
		p, err := read(filepath.Join(dir, name+".toml"))
		if !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	b, err := data.ReadFile("data/" + name + ".toml")
	if err != nil {
		return nil, nil //nolint:nilerr // there is none of that name
	}
	return Parse(name, b)
}

// Text is the file of a provider, as it is.
func Text(p *Provider) ([]byte, error) {
	if p.From != "" {
		return p.text, nil
	}
	return data.ReadFile("data/" + p.Name + ".toml")
}

// Find is the provider of that name.
func Find(dir, name string) (*Provider, error) {
	if p, err := only(dir, name); p != nil || err != nil {
		return p, err
	}
	list, _ := List(dir) // a mistake in another's file is not what was asked about
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name
	}
	e := sandbox.Errorf(sandbox.NotFound, "agent %.60q: there is none of that name", name)
	if n := near.Of(name, names); n != "" {
		return nil, e.WithHint("did you mean %s?", n)
	}
	return nil, e.WithHint("carboy agent ls, or add %s.toml to %s", name, dir)
}

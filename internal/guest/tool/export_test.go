package tool

// Decode reads a request.
func Decode(b []byte, q any) error { return decode(b, q) }

// Pattern reads a pattern and returns what it matches.
func Pattern(text string) (func(string) bool, error) {
	p, err := newPattern(text)
	if err != nil {
		return nil, err
	}
	return p.match, nil
}

// Place says where a path leads below a root.
func Place(root, p string) (rel, abs string, err error) {
	c := &call{root: root}
	return c.place(p)
}

// Dirents returns the names in what getdents64 gave.
func Dirents(b []byte) (names []string) {
	for _, e := range parseDirents(b) {
		names = append(names, e.name)
	}
	return names
}

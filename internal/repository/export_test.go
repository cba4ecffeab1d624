package repository

// ForSandbox is for tests.
func ForSandbox(text string) ([]byte, error) { return forSandbox(text, "..") }

// NamedAt is NamedInside of a repository that .git says to be at p.
func NamedAt(p string) string { return (&Repository{Outside: true, named: p}).NamedInside() }

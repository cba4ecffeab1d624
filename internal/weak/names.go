package weak

// Of directories that a guest can change.
const (
	NamesFollowed Weakness = "names-followed" // the host follows links there, as calls by path do
)

//go:build !race

package role

// environment is what roles have beside a path: nothing.
var environment []string

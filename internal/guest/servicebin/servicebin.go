// Package servicebin carries the program that runs in sandboxes of our own
// templates inside the binary that users get: cmd/carboy-service.
//
// The program is built before, by make, into this package's bin directory. A
// build without it works, and Binary then says what to do.
package servicebin

import (
	"embed"
	"errors"
)

//go:embed all:bin
var bin embed.FS

// ErrNotBuilt says that the program was not there when this binary was built.
var ErrNotBuilt = errors.New("the program of services is not in this binary: run make build")

// Binary returns the program's executable, a copy, or ErrNotBuilt.
func Binary() ([]byte, error) {
	data, err := bin.ReadFile("bin/carboy-service")
	if err != nil || len(data) == 0 {
		return nil, ErrNotBuilt
	}
	return data, nil
}

// Package guestbin carries the guest agent inside the binary that users get.
//
// The agent is built before, by make, into this package's bin directory. A
// build without it works, and Binary then says what to do.
package guestbin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"sync"
)

//go:embed all:bin
var bin embed.FS

const name = "bin/carboy-guest"

// ErrNotBuilt says that the agent was not there when this binary was built.
var ErrNotBuilt = errors.New("the guest agent is not in this binary: run make build")

// Built reports whether the agent was there when this binary was built.
func Built() bool {
	fi, err := fs.Stat(bin, name)
	return err == nil && fi.Size() > 0
}

// Binary returns the agent's executable, a copy, or ErrNotBuilt.
func Binary() ([]byte, error) {
	data, err := read()
	if err != nil || len(data) == 0 {
		return nil, ErrNotBuilt
	}
	return data, nil
}

// Digest returns the SHA-256 of the agent's executable in hex, or
// ErrNotBuilt. Agents of equal digest are the same.
func Digest() (string, error) {
	digest.once.Do(func() {
		var data []byte
		if data, digest.err = Binary(); digest.err == nil {
			sum := sha256.Sum256(data)
			digest.hex = hex.EncodeToString(sum[:])
		}
	})
	return digest.hex, digest.err
}

// digest is no function's value: what links this package, and asks for no agent, then
// has none in it.
var digest struct {
	once sync.Once
	hex  string
	err  error
}

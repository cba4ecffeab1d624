package tool

import (
	"io"

	"github.com/carboy-sandbox/carboy/api/box"
)

// Unpack reads an archive of a guest's.
func Unpack(r io.Reader) (box.Collected, error) { return unpack(r) }

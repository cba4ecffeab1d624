package tool

import (
	"io"

	"github.com/carboy-sandbox/carboy/api/tools"
)

// Unpack reads an archive of a guest's.
func Unpack(r io.Reader) (tools.Collected, error) { return unpack(r) }

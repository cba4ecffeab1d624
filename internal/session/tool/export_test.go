package tool

import (
	"io"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// Unpack reads an archive of a guest's.
func Unpack(r io.Reader) (langbot.Collected, error) { return unpack(r) }

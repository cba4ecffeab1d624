//go:build !weakened

package program

import "embed"

//go:embed all:bin
var bin embed.FS

const dir = "bin"

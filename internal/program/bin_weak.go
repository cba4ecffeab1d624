//go:build weakened

package program

import "embed"

//go:embed all:weakbin
var bin embed.FS

const dir = "weakbin"

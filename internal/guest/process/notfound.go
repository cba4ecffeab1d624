package process

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// Of a list of directories in a message, at most this is shown.
const (
	maxShown      = 32
	maxShownBytes = 2048
)

// searched is what follows the message of a command that was looked up and
// not found: where it was looked for, and where the host would have looked
// besides.
func searched(c jail.Command, e *jail.StartError, notShown []string) string {
	// The same code is a file's whose interpreter is missing.
	if e.Code != jail.CodeNotFound || strings.Contains(c.Argv[0], "/") || !strings.HasSuffix(e.Msg, "command not found") {
		return ""
	}
	var dirs []string
	for _, v := range c.Env {
		if list, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs = strings.Split(list, ":")
		}
	}
	for i, dir := range dirs {
		if !path.IsAbs(dir) {
			dirs[i] = path.Join(c.Dir, dir)
		}
	}
	text := "; looked in " + shown(dirs)
	if len(notShown) > 0 {
		text += "; of the host's PATH this sandbox does not show " + shown(notShown)
	}
	return text
}

// shown lists directories, each once.
func shown(dirs []string) string {
	var list []string
	size := 0
	for _, dir := range dirs {
		if slices.Contains(list, dir) {
			continue
		}
		if size += len(dir); len(list) == maxShown || size > maxShownBytes {
			return fmt.Sprintf("%s and more", strings.Join(list, ", "))
		}
		list = append(list, dir)
	}
	return strings.Join(list, ", ")
}

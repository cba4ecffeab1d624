// Command carboy-manual writes carboy's man pages and its completion scripts, made
// from the text that the commands have, into a directory. It is a step of packaging,
// and not installed.
package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: carboy-manual VERSION DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "carboy-manual:", err)
		os.Exit(1)
	}
}

// write fills dir, which it makes: man/ and completions/. Pages have the day of
// SOURCE_DATE_EPOCH, which is a number of seconds, or that of 1970 without it.
func write(version, dir string) error {
	seconds, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	day := time.Unix(seconds, 0).UTC().Format(time.DateOnly)
	for name, pages := range map[string][]cli.Page{"man": cli.Manual(version, day), "completions": cli.Completions()} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
		for _, p := range pages {
			if err := os.WriteFile(filepath.Join(dir, name, p.Name), []byte(p.Text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

package proxy_test

import (
	"log"
	"log/slog"
)

// quiet is where servers of tests complain.
func quiet() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) }

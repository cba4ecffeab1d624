package service

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/durable"
)

// cursors are how far pods were read, by record.Pod.Key, in a file that the next daemon reads. A loss of power may set them back.
type cursors struct {
	path string
	log  *slog.Logger

	mu sync.Mutex
	at map[string]int
}

func openCursors(path string, log *slog.Logger) *cursors {
	c := &cursors{path: path, log: log, at: map[string]int{}}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &c.at)
	}
	if err != nil && !os.IsNotExist(err) {
		log.Warn("read how far pods were read", "error", err)
	}
	if c.at == nil {
		c.at = map[string]int{}
	}
	return c
}

func (c *cursors) of(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[key]
}

func (c *cursors) set(key string, at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[key] == at {
		return
	}
	c.at[key] = at
	c.save()
}

// keep forgets all but those of which there says so.
func (c *cursors) keep(there func(key string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.at)
	maps.DeleteFunc(c.at, func(key string, _ int) bool { return !there(key) })
	if len(c.at) != before {
		c.save()
	}
}

func (c *cursors) forget(keys ...string) {
	c.keep(func(key string) bool { return !slices.Contains(keys, key) })
}

// save writes them, all or, where there is no room, as they were.
func (c *cursors) save() {
	b, err := json.Marshal(c.at)
	if err == nil {
		err = durable.Write(c.path, b, durable.Options{})
	}
	if err != nil {
		c.log.Warn("write how far pods were read", "error", err)
	}
}

package snapshot

import (
	"encoding/json"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// writeRecord puts a record into a snapshot's directory in place of the one
// that is there, durably.
func writeRecord(dir string, rec sandbox.Snapshot) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(dir, fileRecord), raw, durable.Options{})
}

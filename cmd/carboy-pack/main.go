// Command carboy-pack packs the programs that carboy carries, for package program. It is
// of the build alone.
//
// usage: carboy-pack DIRECTORY PROGRAM...
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// As package program has them, which is not imported: it embeds what is packed here.
const (
	index  = "index"
	suffix = ".zst"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: carboy-pack DIRECTORY PROGRAM...")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "carboy-pack:", err)
		os.Exit(1)
	}
}

// pack writes the programs and their index into dir. What is packed already stays as it
// is, so that what embeds it is not linked anew.
func pack(dir string, programs []string) error {
	var list bytes.Buffer
	data := map[string][]byte{}
	for _, path := range programs {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		fmt.Fprintf(&list, "%x %d %s\n", sha256.Sum256(raw), len(raw), name)
		data[name] = raw
	}
	at := filepath.Join(dir, index)
	if old, err := os.ReadFile(at); err == nil && bytes.Equal(old, list.Bytes()) {
		return nil
	}
	if err := os.RemoveAll(at); err != nil { // it says that all is there
		return err
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return err
	}
	for name, raw := range data {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), z.EncodeAll(raw, nil), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(at, list.Bytes(), 0o644)
}

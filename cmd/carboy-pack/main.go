// Command carboy-pack packs the programs that carboy carries, for package program. It is
// of the build alone.
//
// usage: carboy-pack [-best] DIRECTORY PROGRAM...
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// As package program has them, which is not imported: it embeds what is packed here.
const (
	index  = "index"
	suffix = ".zst"

	window = 64 << 20 // what is alike in a program lies far apart: it has the guest agent, too
)

func main() {
	best := flag.Bool("best", false, "pack as small as can be, which takes three times as long")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: carboy-pack [-best] DIRECTORY PROGRAM...")
		os.Exit(2)
	}
	level := zstd.SpeedBetterCompression
	if *best {
		level = zstd.SpeedBestCompression
	}
	if err := pack(flag.Arg(0), flag.Args()[1:], level); err != nil {
		fmt.Fprintln(os.Stderr, "carboy-pack:", err)
		os.Exit(1)
	}
}

// pack writes the programs and their index into dir. What is packed already stays as it
// is, so that what embeds it is not linked anew.
func pack(dir string, programs []string, level zstd.EncoderLevel) error {
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
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level), zstd.WithWindowSize(window))
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

package layer_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
)

// manyFiles is a layer of 100 MiB in 12,800 files of 8 KiB, half of it text.
func manyFiles() []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	var blocks []block
	content := make([]byte, 8<<10)
	for d := range 128 {
		blocks = append(blocks, dir(fmt.Sprintf("usr/lib/d%d", d)))
		for f := range 100 {
			for i := range content {
				if content[i] = byte(rnd.Uint32()); i%2 == 0 {
					content[i] = 'a' + content[i]%4
				}
			}
			blocks = append(blocks, file(fmt.Sprintf("usr/lib/d%d/f%d", d, f), string(content)))
		}
	}
	return archive(blocks...)
}

func BenchmarkUnpack(b *testing.B) {
	data := manyFiles()
	for _, bb := range []struct {
		name string
		data []byte
	}{{"tar", data}, {"gzip", gz(data)}, {"zstd", zst(data)}} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			base := b.TempDir() // all stay until the end: ext4 is slow to create where much was just deleted
			for i := 0; b.Loop(); i++ {
				d := fmt.Sprintf("%s/%d", base, i)
				must(b, os.Mkdir(d, 0o755))
				if _, err := layer.Unpack(b.Context(), bytes.NewReader(bb.data), d, layer.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

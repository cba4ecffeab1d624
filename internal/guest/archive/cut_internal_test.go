package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// An archive cut anywhere, within an extended header too, is not a whole one.
func TestExtractCutArchive(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"a", strings.Repeat("long", 60)} {
		h := &tar.Header{Name: name, Mode: 0o644, Size: 3, Format: tar.FormatPAX, PAXRecords: map[string]string{"CARBOY.x": "1"}}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for cut := 1; cut <= len(whole)-1024; cut++ {
		s := newStream(bytes.NewReader(whole[:cut]))
		var err error
		for err == nil {
			_, err = s.next()
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("cut after %d of %d bytes: taken for whole", cut, len(whole))
		}
	}
	s := newStream(bytes.NewReader(whole))
	var err error
	for err == nil {
		_, err = s.next()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the whole archive: %v", err)
	}
}

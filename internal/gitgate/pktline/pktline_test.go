package pktline_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
)

func TestNext(t *testing.T) {
	r := pktline.NewReader(strings.NewReader("0006a\n0004000000010002000Bxyz1234"))
	for _, want := range []struct {
		kind pktline.Kind
		data string
	}{{pktline.Data, "a\n"}, {pktline.Data, ""}, {pktline.Flush, ""}, {pktline.Delimiter, ""}, {pktline.End, ""}, {pktline.Data, "xyz1234"}} {
		kind, data, err := r.Next()
		if err != nil || kind != want.kind || string(data) != want.data {
			t.Fatalf("%v %q %v, want %v", kind, data, err, want)
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at its end: %v", err)
	}
}

func TestNextRefuses(t *testing.T) {
	for _, text := range []string{"0", "00", "0003", "xxxx", "-001", "+004", "0 04", "fff1" + strings.Repeat("x", 70_000), "ffff", "0008abc", "PACK"} {
		if _, _, err := pktline.NewReader(strings.NewReader(text)).Next(); !errors.Is(err, pktline.ErrBroken) {
			t.Errorf("%.8q: %v", text, err)
		}
	}
}

// TestBand: what is longer than a line comes in several, and is whole.
func TestBand(t *testing.T) {
	text := strings.Repeat("0123456789", 20_000)
	var out bytes.Buffer
	if n, err := io.WriteString(pktline.Band{W: &out, Band: pktline.BandProgress}, text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	var got strings.Builder
	r := pktline.NewReader(&out)
	for {
		_, data, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || data[0] != pktline.BandProgress {
			t.Fatal(data[0], err)
		}
		got.Write(data[1:])
	}
	if got.String() != text {
		t.Error("it differs")
	}
}

// FuzzNext: any bytes are lines or refused, and what was read, written anew, is the same.
func FuzzNext(f *testing.F) {
	f.Add([]byte("0006a\n0000"))
	f.Add([]byte("00010002000500"))
	f.Add([]byte("fff0"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := pktline.NewReader(bytes.NewReader(in))
		var out []byte
		for {
			kind, data, err := r.Next()
			if err != nil {
				break
			}
			switch kind {
			case pktline.Data:
				out = pktline.Append(out, string(data))
			default:
				out = append(out, "000"...)
				out = append(out, '0'+byte(kind-1))
			}
		}
		if !bytes.EqualFold(out, in[:len(out)]) {
			t.Errorf("%q became %q", in, out)
		}
	})
}

// TestAppendLong: a text that no line holds is not cut to another one.
func TestAppendLong(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was cut")
		}
	}()
	pktline.Append(nil, strings.Repeat("x", pktline.MaxData+1))
}

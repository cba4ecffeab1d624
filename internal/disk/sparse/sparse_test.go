package sparse_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk/sparse"
)

func file(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// holed is a file with a hole at its beginning, between and at its end.
func holed(t testing.TB) (*os.File, []byte) {
	t.Helper()
	f := file(t)
	for _, at := range []int64{1 << 20, 5<<20 + 17} {
		if _, err := f.WriteAt(bytes.Repeat([]byte("data"), 400_000), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(32 << 20); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return f, b
}

func TestPassedOn(t *testing.T) {
	from, want := holed(t)
	var passed bytes.Buffer
	if err := sparse.Write(&passed, from); err != nil {
		t.Fatal(err)
	}
	whole := passed.Bytes()
	if len(whole) > 8<<20 {
		t.Errorf("%d bytes were passed on", len(whole))
	}
	to := file(t)
	n, err := sparse.Read(&passed, to, 32<<20, nil)
	if err != nil || n != 32<<20 {
		t.Fatalf("read %d, %v", n, err)
	}
	got, err := os.ReadFile(to.Name())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the files differ (%v)", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(to.Fd()), &st); err != nil || st.Blocks*512 > 8<<20 {
		t.Errorf("it takes %d bytes, %v", st.Blocks*512, err)
	}
	for cut := 0; cut < len(whole); cut += 1 + len(whole)/257 {
		if _, err := sparse.Read(bytes.NewReader(whole[:cut]), file(t), 32<<20, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	if _, err := sparse.Read(bytes.NewReader(whole), file(t), 32<<20-1, nil); err == nil {
		t.Error("a file that is too long was taken")
	}
}

func FuzzRead(f *testing.F) {
	from, _ := holed(f)
	var passed bytes.Buffer
	if err := sparse.Write(&passed, from); err != nil {
		f.Fatal(err)
	}
	f.Add(passed.Bytes()[:64])
	f.Add(append(make([]byte, 15), 1, 'x', 0xFF))
	f.Fuzz(func(t *testing.T, b []byte) {
		to := file(t)
		n, err := sparse.Read(bytes.NewReader(b), to, 1<<20, nil)
		if fi, serr := to.Stat(); serr != nil || fi.Size() > 1<<20 || err == nil && fi.Size() != n {
			t.Errorf("%d bytes, told %d, %v", fi.Size(), n, errors.Join(err, serr))
		}
	})
}

package transcript_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
)

func open(t *testing.T, path string, max int64) *transcript.Log {
	t.Helper()
	l, err := transcript.Open(path, max)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func add(t *testing.T, l *transcript.Log, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if _, err := l.Append(transcript.Entry{Kind: transcript.Assistant, Text: s}); err != nil {
			t.Fatal(err)
		}
	}
}

// read returns the texts from an entry on, and where they begin and end.
func read(t *testing.T, l *transcript.Log, from int) (texts []string, first, next int) {
	t.Helper()
	first, next, err := l.Read(from, func(_ int, e transcript.Entry) error {
		texts = append(texts, e.Text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts, first, next
}

// TestLog: entries stay as they were written, with their numbers, in the next life of the daemon too.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path, 0)
	code := 3
	want := []transcript.Entry{
		{Kind: transcript.User, Turn: 1, Command: "c", Segments: []wire.Segment{wire.Text("a\nb")}},
		{Kind: transcript.Assistant, Turn: 1, Text: "x\x00\n\"", To: 4},
		{Kind: transcript.End, Turn: 1, Result: transcript.Failed, Text: "why", Code: &code},
	}
	for i, e := range want {
		if n, err := l.Append(e); err != nil || n != i {
			t.Fatalf("entry %d: %d, %v", i, n, err)
		}
	}
	l.Close()
	l = open(t, path, 0)
	var got []transcript.Entry
	first, next, err := l.Read(0, func(_ int, e transcript.Entry) error { got = append(got, e); return nil })
	if err != nil || first != 0 || next != 3 {
		t.Errorf("read from %d to %d, %v", first, next, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(want[2], l.Last()); d != "" {
		t.Errorf("last (-want +got):\n%s", d)
	}
	if texts, first, next := read(t, l, 2); len(texts) != 1 || first != 2 || next != 3 {
		t.Errorf("from 2: %q, %d, %d", texts, first, next)
	}
	if texts, _, next := read(t, l, 9); len(texts) != 0 || next != 3 {
		t.Errorf("from 9: %q, %d", texts, next)
	}
}

// TestTorn: what was cut off anywhere in a file costs the line that it is in, and the next entry is whole.
func TestTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path, 0)
	add(t, l, "one", "two")
	l.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if err := os.WriteFile(path, b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, path, 0)
		before, _, _ := read(t, l, 0)
		add(t, l, "three")
		l.Close()
		got, _, next := read(t, open(t, path, 0), 0)
		if want := append(before, "three"); !cmp.Equal(want, got) || next != len(want) || len(before) != max(0, strings.Count(string(b[:n]), "\n")-1) {
			t.Fatalf("cut to %d bytes: %q", n, got)
		}
	}
}

// TestBroken: a file that is none is an error, and stays as it is.
func TestBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, text := range []string{"x\n", "{\"first\":0}\nx\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := transcript.Open(path, 0); err == nil {
			t.Errorf("%q was opened", text)
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("%q became %q", text, b)
		}
	}
}

// TestTooLong: the oldest entries go, and the newest keep their numbers, also for the next daemon.
func TestTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path, 2000)
	for i := range 100 {
		add(t, l, strings.Repeat("x", i))
	}
	check := func(l *transcript.Log) {
		t.Helper()
		texts, first, next := read(t, l, 0)
		if next != 100 || first == 0 || first+len(texts) != next {
			t.Fatalf("%d texts from %d to %d", len(texts), first, next)
		}
		for i, s := range texts {
			if len(s) != first+i {
				t.Errorf("entry %d has %d letters", first+i, len(s))
			}
		}
	}
	check(l)
	if fi, err := os.Stat(path); err != nil || fi.Size() > 2200 {
		t.Errorf("it has %d bytes, %v", fi.Size(), err)
	}
	l.Close()
	check(open(t, path, 2000))
	big := open(t, filepath.Join(t.TempDir(), "log"), 100)
	add(t, big, strings.Repeat("y", 1000))
	if texts, _, _ := read(t, big, 0); len(texts) != 1 || len(texts[0]) != 1000 {
		t.Error("an entry that is longer than all may be was not kept")
	}
}

// TestGone: a log that was removed or closed takes nothing more, and removing it twice is no error.
func TestGone(t *testing.T) {
	if _, err := transcript.Open("/dev/full/x", 0); err == nil {
		t.Error("opened below no directory")
	}
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path, 0)
	add(t, l, "one")
	if err := transcript.Remove(path); err != nil {
		t.Error(err)
	}
	if err := transcript.Remove(path); err != nil {
		t.Error(err)
	}
	l.Close()
	if _, err := l.Append(transcript.Entry{}); err == nil {
		t.Error("a closed log took an entry")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte("{\"first\":0}\n{\"kind\":\"user\"}\n"))
	f.Add([]byte("{\"first\":7}\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := transcript.Open(path, 0)
		if err != nil {
			return
		}
		defer l.Close()
		_, next, err := l.Read(0, func(int, transcript.Entry) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if n, err := l.Append(transcript.Entry{Kind: transcript.Note}); err != nil || n != next {
			t.Fatalf("entry %d, %v; want %d", n, err, next)
		}
	})
}

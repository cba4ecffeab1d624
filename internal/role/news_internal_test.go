package role

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// TestNews: news come apart from the answer, however what a role writes is cut.
func TestNews(t *testing.T) {
	var out bytes.Buffer
	for _, n := range []any{1, "two\nlines"} {
		if err := TellNews(&out, n); err != nil {
			t.Fatal(err)
		}
	}
	const answer = `{"pid":1,"news":null}` + "\n"
	out.WriteString(answer)
	var got []string
	r := newsReader{news: func(raw json.RawMessage) { got = append(got, string(raw)) }}
	for _, b := range out.Bytes() {
		if n, err := r.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := []string{"1", `"two\nlines"`}; !slices.Equal(got, want) || string(r.rest) != answer {
		t.Errorf("news %q, answer %q", got, r.rest)
	}
}

package role

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// news is a line that a role writes before its answer.
type news struct {
	News json.RawMessage `json:"news"`
}

// TellNews writes a role's news to where its answer will go.
func TellNews(out io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(news{News: raw})
}

// newsReader takes the news out of what a role writes.
type newsReader struct {
	news func(json.RawMessage) // nil: nobody wants them
	rest []byte                // the answer
}

// Write implements io.Writer. It keeps a line that has not ended.
func (r *newsReader) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for {
		line, more, ended := bytes.Cut(r.rest, []byte("\n"))
		var n news
		if !ended || !bytes.HasPrefix(line, []byte(`{"news":`)) || json.Unmarshal(line, &n) != nil {
			return len(p), nil
		}
		if r.news != nil {
			r.news(n.News)
		}
		r.rest = append([]byte(nil), more...)
	}
}

// EndWith ends this process once nobody reads what it answers: who asked for it is dead. It returns
// where that can't be told.
func EndWith(out *os.File) {
	fds := []unix.PollFd{{Fd: int32(out.Fd())}} // an error is always told
	for {
		n, err := unix.Poll(fds, -1)
		if n > 0 {
			os.Exit(1)
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

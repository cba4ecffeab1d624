package reach

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
)

// maxTail bounds how much of a log's end is looked through, in bytes, and maxCause
// how much of a cause is told.
const (
	maxTail  = 256 << 10
	maxCause = 400
)

// Why looks in the log of a home's daemon for the last request since a moment that
// failed with message, and returns the log's path and the cause that stands there. The
// cause is "" where there is none, or the caller may not read the log: it is the
// owner's alone. The path is "" where no daemon of this home has written one.
func Why(dirs home.Dirs, message string, since time.Time) (path, cause string) {
	path = logPath(dirs)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if os.IsNotExist(err) {
		return "", ""
	}
	if err != nil {
		return path, ""
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return path, ""
	} else if fi.Size() > maxTail {
		if _, err := f.Seek(-maxTail, io.SeekEnd); err != nil {
			return path, ""
		}
	}
	lines := bufio.NewScanner(io.LimitReader(f, 2*maxTail))
	lines.Buffer(nil, maxTail)
	for lines.Scan() {
		if c := causeOf(lines.Text(), message, since); c != "" {
			cause = c
		}
	}
	return path, cause
}

// causeOf is the innermost cause in a line about a request that failed with
// message, or "".
func causeOf(line, message string, since time.Time) string {
	attrs := logAttrs(line)
	var at, msg, said, cause string
	for _, a := range attrs {
		switch a[0] {
		case "time":
			at = a[1]
		case "msg":
			msg = a[1]
		case "error":
			said = a[1]
		case "cause":
			cause = a[1]
		}
	}
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || t.Before(since.Truncate(time.Millisecond)) || msg != "a request failed" || said != message {
		return ""
	}
	if len(cause) > maxCause {
		cause = strings.ToValidUTF8(cause[:maxCause], "") + "..."
	}
	return cause
}

// logAttrs reads a line as slog's TextHandler writes it: key=value, with what
// has spaces in quotes.
func logAttrs(line string) (out [][2]string) {
	for line != "" {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			break
		}
		if q, err := strconv.QuotedPrefix(rest); err == nil && strings.HasPrefix(rest, `"`) {
			value, err := strconv.Unquote(q)
			if err != nil {
				break
			}
			out = append(out, [2]string{key, value})
			line = strings.TrimPrefix(rest[len(q):], " ")
			continue
		}
		value, after, _ := strings.Cut(rest, " ")
		out = append(out, [2]string{key, value})
		line = after
	}
	return out
}

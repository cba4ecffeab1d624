package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
)

const (
	readSize   = 128 << 10 // bytes of a file that are read at once
	binaryHead = 8000      // bytes of a file in which a NUL makes it a binary one
	cut        = "... [truncated]"
)

// grep answers which lines match an expression.
func (c *call) grep(q *tools.GrepRequest) (res tools.GrepResult, err error) {
	deadline := time.Now().Add(c.s.opts.Budget)
	g := &grepper{walk: walk{ctx: c.ctx, deadline: deadline}}
	if g.m, err = newMatcher(c.ctx, q.Pattern, deadline); err != nil {
		return res, err
	}
	if q.Include != "" {
		if g.include, err = newPattern(q.Include); err != nil {
			return res, err
		}
	}
	rel, abs, err := c.place(q.Path)
	if err != nil {
		return res, err
	}
	g.base, g.visit = abs, g.file
	err = c.do(func(root int) error {
		fd, err := beneath.Open(root, rel, unix.O_RDONLY|openFlags)
		if err != nil {
			return explain(abs, err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return explain(abs, err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			err = g.run(fd)
		case unix.S_IFREG:
			if err = g.search(fd, st.Size, abs); errors.Is(err, errEnough) {
				err = nil
			}
		default:
			err = failf(tools.ToolInvalid, "path must name a regular file or a directory: %s", short(abs))
		}
		return explain(abs, err)
	})
	if err != nil {
		return res, err
	}
	res = tools.GrepResult{
		Matches: g.found, Total: len(g.found), Searched: g.Searched,
		TruncatedBy: g.cause, Truncated: g.cause != "",
	}
	if res.Matches == nil {
		res.Matches = []tools.GrepMatch{}
	}
	res.OK = true
	return res, nil
}

// grepper looks for lines.
type grepper struct {
	walk
	m       *matcher
	include *pattern
	base    string
	found   []tools.GrepMatch
	size    int   // of found, on the wire
	scanned int64 // bytes
	buf     []byte
}

// file searches one file of the tree.
func (g *grepper) file(dir int, e dirent, rel string) error {
	if e.kind != unix.DT_REG || g.include != nil && !g.include.match(rel) {
		return nil
	}
	if g.Files+g.Binary >= tools.GrepFiles {
		return g.stop(tools.ByFiles)
	}
	fd, err := beneath.OpenNoLinks(dir, e.name, unix.O_RDONLY|openFlags)
	if err != nil {
		g.Unreadable++
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		g.Unreadable++
		return nil
	}
	return g.search(fd, st.Size, join(g.base, rel))
}

// lines is a file that is being searched, some whole lines at once.
type lines struct {
	name    string
	next    int64 // number of the next line
	skip    bool  // to the end of a line that was too long
	started bool
}

// search looks through one file, of a size that it had just now.
func (g *grepper) search(fd int, size int64, name string) error {
	l := &lines{name: name, next: 1}
	held, read := 0, int64(0)
	for {
		if err := g.tick(); err != nil {
			return err
		}
		if len(g.buf)-held < readSize {
			g.buf = append(g.buf[:held], make([]byte, readSize)...)
		}
		n, err := readSome(fd, g.buf[held:])
		if err != nil {
			g.Unreadable++
			return nil
		}
		if n == 0 {
			return g.block(l, g.buf[:held])
		}
		if !l.started {
			l.started = true
			if bytes.IndexByte(g.buf[:min(n, binaryHead)], 0) >= 0 {
				g.Binary++
				return nil
			}
			g.Files++
		}
		read += int64(n)
		if g.scanned += int64(n); g.scanned > tools.GrepScanBytes {
			return g.stop(tools.ByScan)
		}
		held += n
		if held, err = g.whole(l, held); err != nil {
			return err
		}
		if read > tools.GrepFileBytes {
			g.note(tools.ByScan)
			return nil
		}
		if read == size { // its end need not be asked for
			return g.block(l, g.buf[:held])
		}
	}
}

// readSome reads as package os would, whose files first ask a poller about
// each: that is two calls of the system more, and there are thousands.
func readSome(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// whole searches the lines that are whole in what is held, and returns how
// much is held then.
func (g *grepper) whole(l *lines, held int) (int, error) {
	b := g.buf[:held]
	if l.skip {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return 0, nil
		}
		l.skip = false
		l.next++
		b = b[i+1:]
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if err := g.block(l, b[:end]); err != nil {
		return 0, err
	}
	b = b[end:]
	if len(b) > tools.GrepLineBytes {
		g.note(tools.ByLine)
		if err := g.block(l, b[:tools.GrepLineBytes]); err != nil {
			return 0, err
		}
		l.next-- // of the line that goes on
		l.skip = true
		b = nil
	}
	return copy(g.buf, b), nil
}

// block searches lines; the last may lack its newline.
func (g *grepper) block(l *lines, b []byte) error {
	for len(b) > 0 {
		if len(g.m.literal) > 0 { // straight to the next line that can match
			i := bytes.Index(b, g.m.literal)
			if i < 0 {
				break
			}
			start := bytes.LastIndexByte(b[:i], '\n') + 1
			l.next += int64(bytes.Count(b[:start], []byte{'\n'}))
			b = b[start:]
		}
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		found, looked := g.m.match(bytes.TrimSuffix(line, []byte{'\r'}))
		if !looked {
			return g.tick()
		}
		if found {
			if err := g.add(l, line); err != nil {
				return err
			}
		}
		l.next++
		b = rest
		if l.next%1024 == 0 {
			if err := g.tick(); err != nil {
				return err
			}
		}
	}
	l.next += int64(bytes.Count(b, []byte{'\n'}))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		l.next++
	}
	return nil
}

// add keeps a line for the answer.
func (g *grepper) add(l *lines, line []byte) error {
	if len(g.found) == tools.GrepMatches {
		return g.stop(tools.ByMatches)
	}
	line = bytes.TrimRight(line, " \t\r\n\v\f")
	text, long := firstRunes(line, tools.GrepLineChars)
	if long {
		text += cut
	}
	name, _ := repaired([]byte(l.name))
	m := tools.GrepMatch{File: name, Line: l.next, Content: text}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if g.size += len(b) + 1; g.size > tools.MaxToolBytes {
		return g.stop(tools.ByBytes)
	}
	if long {
		g.cause = cmp.Or(g.cause, tools.ByLine)
	}
	g.found = append(g.found, m)
	return nil
}

// firstRunes returns the first characters of b as text, and whether there are
// more.
func firstRunes(b []byte, limit int) (string, bool) {
	i := 0
	for n := 0; i < len(b); n++ {
		if n == limit {
			text, _ := repaired(b[:i])
			return text, true
		}
		_, size := utf8.DecodeRune(b[i:])
		i += size
	}
	text, _ := repaired(b)
	return text, false
}

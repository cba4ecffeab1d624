package proxy

import (
	"bytes"
	"math"
	"net/http"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// Bounds of a head.
const (
	maxHead       = 64 << 10
	maxFields     = 200
	maxChunkLine  = 256      // a chunk's size and its extensions
	maxTrailer    = 16 << 10 // the trailer section
	maxChunkDigit = 15       // of a chunk's size: more than 2^60 bytes are not sent
)

// framing is where a message ends.
type framing struct {
	length  int64 // of its body, where it is not chunked
	chunked bool
}

// checkHead reads the head of a request, up to and with the empty line, and
// returns where the request ends. It takes RFC 9112 at its word, without what
// that allows for old clients' sake: a reader behind the gate who is lenient in
// another way than net/http would see other requests than the policy did.
func checkHead(head []byte) (framing, *Refusal) {
	line, rest, _ := bytes.Cut(head, crlf)
	method, target, old, bad := checkRequestLine(line)
	if bad != nil {
		return framing{}, bad
	}
	if target == "*" && method != http.MethodOptions {
		return framing{}, badRequest("the target * is for OPTIONS alone")
	}
	fs := fieldScan{connect: method == http.MethodConnect, old: old}
	for count := 0; ; count++ {
		line, rest, _ = bytes.Cut(rest, crlf)
		if len(line) == 0 {
			break
		}
		if count == maxFields {
			return framing{}, refuse(http.StatusRequestHeaderFieldsTooLarge, CodeBadRequest, "more than 200 header fields")
		}
		name, value, bad := checkField(line)
		if bad != nil {
			return framing{}, bad
		}
		if bad := fs.take(name, value); bad != nil {
			return framing{}, bad
		}
	}
	if bad := fs.agree(target); bad != nil {
		return framing{}, bad
	}
	return framing{length: fs.length, chunked: fs.chunked}, nil
}

var crlf = []byte("\r\n")

// checkRequestLine parts a request line. old reports HTTP/1.0.
func checkRequestLine(line []byte) (method, target string, old bool, bad *Refusal) {
	m, rest, ok := bytes.Cut(line, []byte(" "))
	t, version, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok || !ok2 || len(m) == 0 || len(t) == 0 {
		return "", "", false, badRequest("the request line is not METHOD TARGET VERSION, with one space between")
	}
	for _, c := range m {
		if !isToken[c] {
			return "", "", false, badRequest("the method has a character that is none of a method's")
		}
	}
	for _, c := range t {
		if c <= ' ' || c == 0x7f {
			return "", "", false, badRequest("the target has a control character or a space")
		}
	}
	switch string(version) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		old = true
	default:
		return "", "", false, refuse(http.StatusHTTPVersionNotSupported, CodeBadRequest, "the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	return string(m), string(t), old, nil
}

// checkField parts a field line, and trims its value.
func checkField(line []byte) (name, value []byte, bad *Refusal) {
	if line[0] == ' ' || line[0] == '\t' {
		return nil, nil, badRequest("a header field is folded over two lines")
	}
	i := bytes.IndexByte(line, ':')
	if i <= 0 {
		return nil, nil, badRequest("a header field without a name, or without a colon")
	}
	for _, c := range line[:i] {
		if !isToken[c] {
			return nil, nil, badRequest("the name of a header field has a space, or a character that is none of a name's")
		}
	}
	for _, c := range line[i+1:] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, badRequest("the value of a header field has a control character")
		}
	}
	return line[:i], bytes.Trim(line[i+1:], " \t"), nil
}

// fieldScan gathers what the framing and the host of a request depend on.
type fieldScan struct {
	connect, old bool
	hosts        int
	host         string
	length       int64
	seen         bool // a Content-Length
	chunked      bool
}

// take looks at one field.
func (f *fieldScan) take(name, value []byte) *Refusal {
	if len(name) == 4 && equalFold(name, "host") {
		f.hosts++
		f.host = string(value)
		return nil
	}
	if bytes.ContainsFunc(name, odd) && field.Misspelt(string(name)) {
		return misspelt(string(name))
	}
	switch {
	case equalFold(name, "content-length"):
		return f.takeLength(value)
	case equalFold(name, "transfer-encoding"):
		if f.chunked || f.old || !equalFold(value, "chunked") {
			return badRequest("Transfer-Encoding is not chunked, once, in HTTP/1.1")
		}
		f.chunked = true
	}
	return nil
}

// odd reports whether a character of a name is none of those that names have.
func odd(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') }

// misspelt refuses a field that CGI and its heirs, and no others, read as one
// of the framing or of the hop.
func misspelt(name string) *Refusal {
	return badRequest("a header field that some read as " + http.CanonicalHeaderKey(field.Fold(name)))
}

func (f *fieldScan) takeLength(value []byte) *Refusal {
	if f.seen {
		return badRequest("Content-Length twice")
	}
	f.seen = true
	if len(value) == 0 || len(value) > 19 {
		return badRequest("Content-Length is no number")
	}
	var n uint64
	for _, c := range value {
		if c < '0' || c > '9' {
			return badRequest("Content-Length is no number")
		}
		n = n*10 + uint64(c-'0')
	}
	if n > math.MaxInt64 {
		return badRequest("Content-Length is no number that can be")
	}
	f.length = int64(n)
	return nil
}

// agree checks the fields with each other, and with the target.
func (f *fieldScan) agree(target string) *Refusal {
	switch {
	case f.chunked && f.seen:
		return badRequest("both Transfer-Encoding and Content-Length")
	case f.connect && (f.chunked || f.length > 0):
		return badRequest("CONNECT with a body")
	case f.hosts > 1:
		return badRequest("Host more than once")
	case f.hosts == 0 && !f.old:
		return badRequest("no Host")
	case strings.Contains(f.host, "@"):
		return badRequest("Host with a user")
	}
	if f.connect || target[0] == '/' || target == "*" {
		return nil
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return badRequest("the target is neither a path nor an http URL")
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#\\"); i >= 0 {
		authority = rest[:i]
	}
	if strings.Contains(authority, "@") {
		return badRequest("the target has a user")
	}
	if f.hosts > 0 && !strings.EqualFold(bare(authority, scheme), bare(f.host, scheme)) {
		return mismatch("the request's target and its Host name two hosts")
	}
	return nil
}

// bare is an authority without the port that its scheme has anyway.
func bare(authority, scheme string) string {
	if strings.EqualFold(scheme, "https") {
		return strings.TrimSuffix(authority, ":443")
	}
	return strings.TrimSuffix(authority, ":80")
}

// equalFold compares with an ASCII text in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// isToken has the characters of methods and names (RFC 9110, 5.6.2).
var isToken = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		t[c] = true
	}
	return t
}()

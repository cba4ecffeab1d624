package tlswire

import "bytes"

// Kind is what a connection's first bytes are.
type Kind string

// The kinds.
const (
	More  Kind = "more"   // too few bytes to tell; MaxSniff are always enough
	TLS   Kind = "tls"    // a TLS record with a handshake in it
	HTTP1 Kind = "http/1" // the request line of HTTP/1
	HTTP2 Kind = "http/2" // the preface of HTTP/2, without TLS
	SSH   Kind = "ssh"
	Other Kind = "other"
)

// MaxSniff is how many bytes Sniff looks at. Given as many, it never answers
// More.
const MaxSniff = maxMethod + 1 + maxScheme

const (
	maxMethod = 24                                 // longer than every registered method
	maxScheme = len("https://")                    // what begins a target that is no path
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // RFC 9113, 3.4
)

// Sniff tells from a connection's first bytes what it is. It asks for no more
// bytes than a client sends without waiting for an answer.
func Sniff(head []byte) Kind {
	switch {
	case len(head) == 0:
		return More
	case head[0] == recordHandshake:
		return sniffTLS(head)
	case begins(head, preface):
		return full(head, preface, HTTP2)
	case begins(head, "SSH-"):
		return full(head, "SSH-", SSH)
	}
	return sniffHTTP(head)
}

// begins reports whether head and s agree, as far as both go.
func begins(head []byte, s string) bool {
	n := min(len(head), len(s))
	return string(head[:n]) == s[:n]
}

// full is k once all of s is there.
func full(head []byte, s string, k Kind) Kind {
	if len(head) < len(s) {
		return More
	}
	return k
}

// sniffTLS reads the header of a record: type, version, length.
func sniffTLS(head []byte) Kind {
	if len(head) > 1 && head[1] != 3 || len(head) > 2 && head[2] > 4 {
		return Other
	}
	if len(head) < recordHeader {
		return More
	}
	if n := int(head[3])<<8 | int(head[4]); n == 0 || n > maxRecord {
		return Other
	}
	return TLS
}

// sniffHTTP takes for HTTP/1 a method, one space, and the beginning of a
// target: a path, "*", an http URL, or anything after CONNECT. "EHLO mail" and
// "USER me" are not.
func sniffHTTP(head []byte) Kind {
	n := 0
	for n < len(head) && isToken(head[n]) {
		n++
	}
	switch {
	case n == 0 || n > maxMethod:
		return Other
	case n == len(head):
		return More
	case head[n] != ' ':
		return Other
	}
	method, target := head[:n], head[n+1:]
	switch {
	case len(target) == 0:
		return More
	case target[0] == '/' || target[0] == '*':
		return HTTP1
	case string(method) == "CONNECT" && target[0] > ' ':
		return HTTP1
	}
	for _, scheme := range []string{"http://", "https://"} {
		m := min(len(target), len(scheme))
		if bytes.EqualFold(target[:m], []byte(scheme[:m])) {
			return full(target, scheme, HTTP1)
		}
	}
	return Other
}

// isToken reports whether a method may hold c (RFC 9110, 5.6.2).
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}

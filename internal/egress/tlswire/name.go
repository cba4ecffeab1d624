package tlswire

import (
	"net/netip"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// serverName returns a name in lower case. It refuses what is no DNS name in
// ASCII, and what somebody might read as an address.
//
// A trailing dot is refused, as RFC 6066 wants: servers differ in whether it
// makes another host.
func serverName(s string) (string, error) {
	if weak.On(weak.NetHelloLax) {
		return strings.ToLower(s), nil
	}
	if s == "" || len(s) > 253 {
		return "", bad("server name of %d bytes", len(s))
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return "", bad("the server name is an address")
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return "", bad("server name with a label of %d bytes", len(label))
		}
		for _, c := range []byte(label) {
			if !isNameByte(c) {
				return "", bad("server name with the byte %#02x", c)
			}
		}
		last = label
	}
	s, last = strings.ToLower(s), strings.ToLower(last) // ASCII alone is left
	if isNumber(last) {
		return "", bad("the server name ends in a number")
	}
	return s, nil
}

// isNameByte allows the underscore, which names of real hosts have.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '_'
}

// isNumber reports whether a label makes a name the address 127.1 or 0x7f.1 in
// the eyes of inet_aton and browsers.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

package main

import (
	"strings"
)

func init() {
	attempts["header-injection"] = headerInjection
	attempts["length-smuggling"] = lengthSmuggling
	attempts["h2-downgrade"] = downgrade
	attempts["path-tricks"] = pathTricks
	attempts["logged-escapes"] = loggedEscapes
}

// headerInjection writes fields that readers part in more than one way.
func headerInjection(*result) error {
	for _, f := range []string{
		"X-A: 1\r\n folded: 1", "X-A: 1\r\n\tX-Injected: 1", "X-A: 1\nX-Injected: 1", "X-A: 1\rX-Injected: 1",
		"X-A : 1", "X A: 1", "X-A: 1\x00", ": 1", "X-A: 1\r\n\x0bX-Injected: 1",
	} {
		_, _ = ask(front+":443", front, get(front, "/header-injection", f))
		_, _ = ask(front+":80", "", get(front, "/header-injection", f))
	}
	_, _ = ask(front+":443", front, strings.ReplaceAll(get(front, "/header-injection"), "\r\n", "\n"))
	_, _ = ask(front+":443", front, "GET  /header-injection HTTP/1.1\r\nHost: "+front+"\r\n\r\n")
	return works(front)
}

// lengthSmuggling writes bodies whose end readers see in more than one place.
func lengthSmuggling(*result) error {
	hidden := get(evil, "/length-smuggling/hidden")
	for _, m := range []string{
		"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
		"Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + hidden,
		"Content-Length: 0, 44\r\n\r\n" + hidden,
		"Content-Length: +5\r\n\r\nhello",
		"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
		"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + hidden,
		"Transfer-Encoding: chunked\r\n\r\n5;a=\n\r\nhello\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
		"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	} {
		_, _ = ask(front+":443", front, "POST /length-smuggling HTTP/1.1\r\nHost: "+front+"\r\n"+m)
	}
	return works(front)
}

// downgrade has fields of HTTP/2 mean something else in HTTP/1.
func downgrade(*result) error {
	for _, f := range []field{
		{"transfer-encoding", "chunked"},
		{"content_length", "5"},
		{"transfer_encoding", "chunked"},
		{"connection", "keep-alive"},
		{"x-a", "1\r\nx-injected: 1"},
		{"x-a", "1\nx-injected: 1"},
		{"x-a\r\nx-injected", "1"},
		{"X-Upper", "1"},
		{"x a", "1"},
		{"content-length", "5"},
		{"host", evil},
		{":authority", evil},
	} {
		if err := speak2(front+":443", front, request2(front, "/h2-downgrade", f)); err != nil {
			return err
		}
	}
	for _, path := range []string{"https://" + evil + "/h2-downgrade", "/h2-downgrade HTTP/1.1\r\nX-Injected: 1"} {
		if err := speak2(front+":443", front, request2(front, path)); err != nil {
			return err
		}
	}
	return works(front)
}

// pathTricks asks for what is not below the one path that is allowed.
func pathTricks(*result) error {
	const host = "paths.example"
	if _, err := ask(host+":443", host, get(host, "/open")); err != nil {
		return err
	}
	for _, path := range []string{
		"/secret", "/open/../secret", "/open/%2e%2e/secret", "/open%2f..%2fsecret", "/open/..;/secret", "/open\\..\\secret",
		"/open/%252e%252e/secret", "//secret", "/opened", "/OPEN/../secret", "/open/%c0%ae%c0%ae/secret", "/secret?/open", "/open/./../secret",
	} {
		_, _ = ask(host+":443", host, get(host, path))
	}
	return nil
}

// loggedEscapes writes what a terminal would obey where a record keeps it.
func loggedEscapes(*result) error {
	for _, path := range []string{"/fine/%1b%5D0;owned%07", "/fine/%1b%5B2J", "/fine/%C2%9b31m", "/fine/%E2%80%AEtxt", "/fine/\xc2\x9b31m", "/fine/%0d%0aallow"} {
		_, _ = ask(front+":443", front, get(front, path))
		_, _ = ask(evil+":443", evil, get(evil, path))
	}
	_, _ = question(resolver, "\x1b[2J.evil.example.", 1)
	return works(front)
}

package hostimage

import (
	"path"
	"strconv"
	"strings"
)

// The user that commands run as.
const (
	UserName = "user"
	UserID   = 1000 // both uid and gid
	UserHome = "/home/user"
)

const nobodyID = 65534

// maxAccounts bounds how many system accounts are taken over.
const maxAccounts = 1000

// passwd writes the image's accounts: root, the user, nobody, and the names
// of the host's system accounts, because packages own files by those names.
// People's accounts, passwords, real names and login shells stay behind.
func passwd(host string, shell string) string {
	var b strings.Builder
	line := func(name string, uid, gid int, home, shell string) {
		b.WriteString(name + ":*:" + strconv.Itoa(uid) + ":" + strconv.Itoa(gid) + "::" + home + ":" + shell + "\n")
	}
	line("root", 0, 0, "/root", shell)
	seen := map[string]bool{"root": true, UserName: true, "nobody": true}
	n := 0
	for l := range strings.Lines(host) {
		f := strings.Split(strings.TrimRight(l, "\n"), ":")
		if len(f) != 7 || seen[f[0]] || !isName(f[0]) || n == maxAccounts {
			continue
		}
		uid, gid := systemID(f[2]), systemID(f[3])
		if uid == 0 {
			continue
		}
		if gid == 0 {
			gid = nobodyID
		}
		seen[f[0]] = true
		n++
		line(f[0], uid, gid, systemHome(f[5]), "/usr/sbin/nologin")
	}
	line(UserName, UserID, UserID, UserHome, shell)
	line("nobody", nobodyID, nobodyID, "/nonexistent", "/usr/sbin/nologin")
	return b.String()
}

// group writes the image's groups in the same way. Nobody is a member of a
// group that is not their own.
func group(host string) string {
	var b strings.Builder
	line := func(name string, gid int) { b.WriteString(name + ":*:" + strconv.Itoa(gid) + ":\n") }
	line("root", 0)
	seen := map[string]bool{"root": true, UserName: true, "nogroup": true}
	n := 0
	for l := range strings.Lines(host) {
		f := strings.Split(strings.TrimRight(l, "\n"), ":")
		if len(f) != 4 || seen[f[0]] || !isName(f[0]) || n == maxAccounts {
			continue
		}
		if gid := systemID(f[2]); gid > 0 {
			seen[f[0]] = true
			n++
			line(f[0], gid)
		}
	}
	line(UserName, UserID)
	line("nogroup", nobodyID)
	return b.String()
}

// systemID returns the number of a system account, or 0 for all others.
func systemID(s string) int {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= UserID {
		return 0
	}
	return int(n)
}

// isName accepts what useradd does.
func isName(s string) bool {
	if s == "" || len(s) > 32 || s[0] != '_' && (s[0] < 'a' || s[0] > 'z') && (s[0] < 'A' || s[0] > 'Z') {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}) < 0
}

// systemHome returns a system account's home, unless it is among people's or
// no plain path.
func systemHome(s string) string {
	odd := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0
	if odd || len(s) > 256 || path.Clean(s) != s || !path.IsAbs(s) || within("/home", s) || within("/root", s) {
		return "/nonexistent"
	}
	return s
}

// within reports whether p is dir or below it; both are clean.
func within(dir, p string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

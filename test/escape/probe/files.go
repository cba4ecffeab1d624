package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

var fileProbes = []probe{
	{name: "host-files", run: hostFiles},
	{name: "planted-names", run: plantedNames},
	{name: "masked", run: masked},
}

// hostFiles looks for the host's secret below everything that could be the
// host's root.
func hostFiles(t *trial) {
	roots := []string{"", "/..", "/mnt", "/host", "/run/host", "/rootfs", "/.oldroot", "/oldroot", "/proc/self/root", "/proc/self/cwd", "/proc/thread-self/root"}
	for _, m := range mounts() {
		roots = append(roots, m.target)
	}
	for _, p := range processes() {
		roots = append(roots, p.file("root"), p.file("cwd"))
	}
	for fd := range 64 {
		roots = append(roots, "/proc/self/fd/"+itoa(fd), "/proc/self/fd/"+itoa(fd)+"/../../../../../..")
	}
	for _, r := range roots {
		name := r + t.SecretFile
		if digest(name) == t.SecretSHA256 {
			t.find("the host's secret is %s", name)
		}
	}
	t.note("looked below %d places", len(roots))
}

// digest returns the SHA-256 of a small regular file, in hex; "" for others.
func digest(name string) string {
	fi, err := os.Stat(name)
	if err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, 1<<16)); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ours are places where the suite itself put names, or where nothing but a
// kernel's files are.
var ours = []string{"/proc", "/sys", facts.Tools, facts.Writable, facts.ReadOnly, facts.Work}

// plantedNames walks what is seen, within bounds, for names that were planted
// on the host, and for sockets.
func plantedNames(t *trial) {
	deadline := time.Now().Add(8 * time.Second)
	seen := 0
	for _, root := range []string{"/run", "/tmp", "/dev", "/var", "/home", "/root", "/mnt", "/media", "/srv", "/opt", "/etc", "/"} {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil
			case d.IsDir() && (boring(p) || seen > 200_000 || time.Now().After(deadline)):
				return fs.SkipDir
			case len(t.finds) > 5:
				return fs.SkipAll
			}
			seen++
			if strings.Contains(d.Name(), t.Marker) {
				t.find("%s was planted on the host", p)
			} else if d.Type()&fs.ModeSocket != 0 && dials("unix", p) {
				t.find("%s answers", p)
			}
			return nil
		})
	}
	t.note("%d names, and none of the host's", seen)
}

// boring tells directories that are not worth the time: the image's own, and
// the same of a host whose root is mounted somewhere.
func boring(p string) bool {
	for _, o := range ours {
		if p == o {
			return true
		}
	}
	base := filepath.Base(p)
	return base == "usr" || base == "proc" || base == "sys"
}

func dials(network, address string) bool {
	c, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// masked looks where the host's administrators keep configuration inside /usr.
func masked(t *trial) {
	for _, dir := range []string{"/usr/etc", "/usr/local/etc"} {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			t.find("%s/%s is shown", dir, e.Name())
		}
		t.note("%s: %d entries, %v", dir, len(entries), err)
	}
}

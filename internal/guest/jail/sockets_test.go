package jail_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/landlock"
)

// shared is a directory with others beside it, on which something is mounted:
// what a strict jail is told that others see as well.
func shared(t *testing.T) (beside, at string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if abi, err := landlock.ABI(); err != nil || abi < jail.SocketsABI {
		t.Skip("this kernel has no Landlock of use:", abi, err)
	}
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip(err)
	}
	beside = playground(t)
	at = filepath.Join(beside, "lead", "shared")
	for _, dir := range []string{at, filepath.Join(beside, "old"), filepath.Join(beside, "lead", "old"), filepath.Join(beside, "read-only", "tmp")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{at, filepath.Join(beside, "read-only"), filepath.Join(beside, "read-only", "tmp")} {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	if err := unix.Mount("", filepath.Join(beside, "read-only"), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(beside, func(p string, _ os.DirEntry, err error) error {
		if err != nil || p == filepath.Join(beside, "read-only") {
			return err
		}
		return os.Chmod(p, 0o777)
	}); err != nil {
		t.Fatal(err)
	}
	return beside, at
}

// binds is a script that makes a socket, and says whether that went well.
func binds(at string) string {
	return `/usr/bin/python3 -c '
import socket
try: socket.socket(socket.AF_UNIX).bind("` + at + `"); print("made")
except OSError as e: print(e.strerror)'`
}

// Commands make no socket in what others see as well, nor where it could get
// there; beside it they do, and in a jail that shares nothing they do everywhere.
func TestSocketsInShared(t *testing.T) {
	const denied, made = "Permission denied\n", "made\n"
	tests := []struct {
		name, first, at string
		want            string
	}{
		{"shared", "", "lead/shared/s", denied},
		{"below-shared", "mkdir -p lead/shared/d", "lead/shared/d/s", denied},
		{"by-a-link", "ln -s lead/shared link", "link/s", denied},
		{"on-the-way", "", "lead/s", denied},
		{"made-later", "mkdir new", "new/s", denied},
		{"beside", "", "old/s", made},
		{"beside-on-the-way", "", "lead/old/s", made},
		{"below-beside", "mkdir -p old/d", "old/d/s", made},
		{"mounted-in-read-only", "", "read-only/tmp/s", made},
		{"tmp", "", "/dev/shm/jail-test-s", made},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			beside, at := shared(t)
			defer os.Remove("/dev/shm/jail-test-s")
			script := tt.first + "\n" + binds(tt.at)
			strict := start(t, jail.Config{Strict: true, Shared: []string{at}})
			if got := in(t, strict, beside, nobody, script).out; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			name := tt.at
			if !filepath.IsAbs(name) {
				name = filepath.Join(beside, name)
			}
			_ = os.Remove(name)
			free := start(t, jail.Config{Strict: true})
			if got := in(t, free, beside, nobody, binds(tt.at)).out; got != made {
				t.Errorf("where nothing is shared: %q", got)
			}
		})
	}
}

// What leads to a shared directory stays where sockets can't be made, whoever
// moves it: a command, or a thread that acts for one.
func TestSharedIsNotMoved(t *testing.T) {
	beside, at := shared(t)
	j := start(t, jail.Config{Strict: true, Shared: []string{at}})
	const move = `/usr/bin/python3 -c '
import os
try: os.rename("lead", "old/lead"); print("moved")
except OSError as e: print(e.strerror)'`
	if got := in(t, j, beside, nobody, move).out; got != "Invalid cross-device link\n" {
		t.Errorf("a command: %q", got)
	}
	from, to := filepath.Join(beside, "lead"), filepath.Join(beside, "old", "lead")
	onThread(func() {
		if err := j.Confine(); err != nil {
			t.Error(err)
		}
		if err := os.Rename(from, to); err == nil || !strings.Contains(err.Error(), "cross-device") {
			t.Errorf("who acts for commands: %v", err)
		}
		for _, name := range []string{"file", "old"} { // the old one has its right by itself
			if name == "file" {
				if err := os.WriteFile(filepath.Join(beside, name), nil, 0o644); err != nil {
					t.Error(err)
				}
			}
			if err := os.Rename(filepath.Join(beside, name), filepath.Join(from, name+"-moved")); err != nil {
				t.Errorf("move %s: %v", name, err)
			}
		}
	})
	if err := os.Rename(filepath.Join(from, "old-moved"), filepath.Join(beside, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(from, to); err != nil {
		t.Errorf("outside: %v", err)
	}
}

// A jail that is told of a shared directory where nothing is mounted does not
// start.
func TestSharedIsLookedAt(t *testing.T) {
	beside, _ := shared(t)
	j, err := jail.Start(jail.Config{Strict: true, PIDNamespace: true, Shared: []string{filepath.Join(beside, "old")}})
	if err == nil {
		j.Close()
		t.Error("it started")
	}
}

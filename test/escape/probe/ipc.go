package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

var ipcProbes = []probe{
	{name: "system-v", run: systemV},
	{name: "message-queues", run: messageQueues},
	{name: "shared-memory", run: sharedMemory},
	{name: "host-tmp", run: hostTmp},
	{name: "keyring", run: keyring},
}

// systemV asks for what the host has under a key.
func systemV(t *trial) {
	key := uintptr(t.IPCKey)
	for name, call := range map[string]func() (uintptr, error){
		"segment":   func() (uintptr, error) { return raw(unix.SYS_SHMGET, key, 0, 0) },
		"semaphore": func() (uintptr, error) { return raw(unix.SYS_SEMGET, key, 0, 0) },
		"queue":     func() (uintptr, error) { return raw(unix.SYS_MSGGET, key, 0) },
	} {
		if _, err := call(); err == nil {
			t.find("the host's %s has the key %d here", name, t.IPCKey)
		}
	}
	for _, name := range []string{"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"} {
		b, _ := os.ReadFile(name)
		if n := strings.Count(string(b), "\n"); n > 1 {
			t.find("%s lists %d", name, n-1)
		}
	}
	t.note("nothing has the host's key")
}

func messageQueues(t *trial) {
	fd, err := raw(unix.SYS_MQ_OPEN, pointer(text(t.Queue)), unix.O_RDONLY, 0, 0)
	if err == nil {
		unix.Close(int(fd))
		t.find("the host's queue was opened")
	}
	if _, err := os.Stat("/dev/mqueue/" + t.Queue); err == nil {
		t.find("the host's queue is in /dev/mqueue")
	}
	t.note("the host's queue: %v", err)
}

func sharedMemory(t *trial) { t.plantedIn("/dev/shm") }

func hostTmp(t *trial) {
	t.plantedIn("/tmp")
	t.plantedIn("/var/tmp")
}

func (t *trial) plantedIn(dir string) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.Contains(e.Name(), t.Marker) {
			t.find("%s/%s was planted on the host", dir, e.Name())
		}
	}
	t.note("%s: %d entries, %v", dir, len(entries), err)
}

// keyring looks for the daemon's key: a session's keyring is handed down over
// every fork and exec, and over namespaces.
func keyring(t *trial) {
	rings := []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING, unix.KEY_SPEC_PROCESS_KEYRING}
	for _, ring := range rings {
		id, err := unix.KeyctlSearch(ring, "user", t.Key, 0)
		if err != nil {
			continue
		}
		buf := make([]byte, 64)
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
		t.find("the host's key %d is in keyring %d; %d bytes of it were read, %v", id, ring, n, err)
	}
	if b, _ := os.ReadFile("/proc/keys"); strings.Contains(string(b), t.Marker) {
		t.find("/proc/keys lists the host's key")
	}
	if !t.Native() {
		t.note("the host's key is not found")
		return
	}
	if id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); err == nil {
		t.find("the kernel answers keyctl: keyring %d", id)
	}
	if id, err := unix.AddKey("user", "probe", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING); err == nil {
		t.find("a key was added: %d", id)
	}
	t.note("keys are refused")
}

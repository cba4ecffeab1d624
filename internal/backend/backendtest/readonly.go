package backendtest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// tryEverywhere has a command try to write to each place, and print those where
// it could. /run/carboy and /proc are nobody's to write to at any time.
const tryEverywhere = `
for d in / /usr /usr/lib /etc /var /var/lib /var/lib/dpkg /var/log /opt /run /home /srv /mnt /boot /media /root /dev /sys /proc /run/carboy \
	/home/user /workspace /tmp /var/tmp /dev/shm; do
	(echo x >"$d/.probe") 2>/dev/null && rm "$d/.probe" && echo "$d"
done | sort
mount -o remount,rw / 2>/dev/null; mount -o remount,bind,rw /usr 2>/dev/null; umount -l /tmp 2>/dev/null
python3 -c 'import os
for f in "/etc/passwd", "/usr/bin/env", "/etc":
    for do in (lambda: os.chmod(f, 0o777), lambda: os.utime(f), lambda: os.rename(f, f + "-"), lambda: os.chown(f, 1000, 1000), lambda: os.setxattr(f, "user.x", b"y")):
        try: do(); print("changed", f)
        except OSError: pass'
echo x >/dev/null && head -c 1 /dev/urandom >/dev/null && echo devices work`

func readOnly(sb *sandbox.Sandbox) { sb.Spec.ReadOnlyRoot = true }

func testReadOnlyRoot(t *testing.T, s *suite) {
	w := s.open(t)
	for _, user := range s.users() {
		t.Run(user, func(t *testing.T) {
			as := func(sb *sandbox.Sandbox) { sb.Spec.User = user }
			home := map[string]string{"user": "/home/user", "root": "/root"}[user]
			want := strings.Join([]string{"/dev/shm", home, "/tmp", "/var/tmp", "/workspace", "devices work\n"}, "\n")
			b := w.begin(t, readOnly, as)
			for range 2 { // and once more after a stop
				if got := b.run(t, command(user, tryEverywhere)).stdout; got != want {
					t.Errorf("wrote to:\n%swant:\n%s", got, want)
				}
				w.mustStop(t, b.id)
				b = w.restart(t, b.sb)
			}
			// Or else the probe is blind.
			if got := w.begin(t, as).run(t, command(user, tryEverywhere)).stdout; user == "root" && !strings.Contains(got, "/etc\n") {
				t.Errorf("where the root is writable, wrote to:\n%s", got)
			}
		})
	}
	t.Run("reported", func(t *testing.T) {
		b, other := w.begin(t, readOnly), w.begin(t)
		if e, ok := promise(b.enforced, "root"); !ok || !e.Enforced || !strings.Contains(e.Mechanism, "read-only") {
			t.Errorf("root: %+v", e)
		}
		if e, ok := promise(other.enforced, "root"); ok {
			t.Errorf("root, where nothing was promised: %+v", e)
		}
	})
	t.Run("home-is-of-use", func(t *testing.T) {
		b := w.begin(t, readOnly)
		b.says(t, `mkdir -p ~/.cache/pip ~/.npm && echo kept >~/.cache/pip/x && echo kept >/tmp/y && cat ~/.cache/pip/x
			stat -c '%u %a' ~ /tmp`, "kept\n1000 755\n0 1777\n")
		w.mustStop(t, b.id)
		w.restart(t, b.sb).says(t, "cat ~/.cache/pip/x /tmp/y", "kept\nkept\n")
	})
	t.Run("counted", func(t *testing.T) {
		b := w.begin(t, readOnly, func(sb *sandbox.Sandbox) { sb.Spec.Limits.Disk, sb.Spec.Limits.Inodes = 32<<20, 4096 })
		b.says(t, "head -c 20M /dev/zero >/tmp/a; head -c 20M /dev/zero >/var/tmp/b || head -c 20M /dev/zero >~/c || echo full", "full\n")
	})
	t.Run("file-service", func(t *testing.T) { readOnlyFiles(t, s, w) })
	t.Run("snapshot", func(t *testing.T) { readOnlySnapshot(t, w) })
}

// The file service writes where commands can, and nowhere else.
func readOnlyFiles(t *testing.T, s *suite, w *world) {
	b := w.begin(t, readOnly)
	for _, user := range s.users() {
		for path, may := range map[string]bool{"/tmp/f-" + user: true, "/etc/f": false, "/opt/f": false, "/usr/local/f": false} {
			status, body := b.request(t, http.MethodPost, user, path, strings.NewReader("x"))
			if (status == http.StatusOK) != may {
				t.Errorf("as %s, %s: %d %s", user, path, status, body)
			}
		}
	}
}

// What an instance with a read-only root wrote is in its snapshot, and an instance from
// that has the root that its own Spec says.
func readOnlySnapshot(t *testing.T, w *world) {
	b := w.begin(t, readOnly)
	b.sh(t, "", "echo one >/workspace/f; echo two >~/f; echo three >/tmp/f")
	w.mustStop(t, b.id)
	s := w.save(t, b.sb)
	const probe = "cat /workspace/f ~/f /tmp/f; touch /tmp/g ~/g; touch /etc/g 2>/dev/null; ls /etc/g 2>/dev/null; echo done"
	from := w.begin(t, readOnly, func(sb *sandbox.Sandbox) { sb.Spec.Snapshot = s.ID })
	from.says(t, probe, "one\ntwo\nthree\ndone\n")
	w.from(t, s).says(t, probe, "one\ntwo\nthree\ndone\n")
}

// promise finds what is reported of one.
func promise(list []sandbox.Enforcement, name string) (sandbox.Enforcement, bool) {
	for _, e := range list {
		if e.Promise == name {
			return e, true
		}
	}
	return sandbox.Enforcement{}, false
}

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGuestKernel(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	host, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	got := h.ok("run", "--", "python3", "-c", `print("hello from", open("/proc/version").read())`)
	if !strings.HasPrefix(got, "hello from Linux version") || !strings.Contains(got, "gvisor") {
		t.Errorf("got %q, want gVisor's kernel", got)
	}
	if strings.Contains(got, strings.TrimSpace(string(host))) {
		t.Errorf("got the host's kernel: %q", got)
	}
}

func TestNothingOfTheUsers(t *testing.T) {
	h := newHome(t)
	secret := filepath.Join(h.dir, "secret.txt")
	if err := os.WriteFile(secret, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := h.run(nil, "run", "--", "sh", "-c", "id -u; ls -A /home /root; cat /etc/shadow; cat "+secret+"; ls -A /workspace; echo end")
	want := "1000\n/home:\nuser\nend\n"
	if clean := strings.ReplaceAll(got.stdout, "\n\n", "\n"); clean != want {
		t.Errorf("stdout %q, want %q", clean, want)
	}
	for _, refused := range []string{"/etc/shadow", secret, "/root"} {
		if !strings.Contains(got.stderr, refused) {
			t.Errorf("stderr does not say that %s is out of reach:\n%s", refused, got.stderr)
		}
	}
}

func TestNoNetwork(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	for _, cmd := range []string{"curl -sm 60 http://1.1.1.1", "getent hosts example.com", "curl -sm 60 http://169.254.169.254", "curl -sm 60 http://[2606:4700::1111]"} {
		r := h.run(nil, "exec", name, "--", "sh", "-c", "s=$(date +%s%N); "+cmd+"; c=$?; echo $(( ($(date +%s%N)-s)/1000000 )); exit $c")
		if r.code == 0 {
			t.Errorf("%s: went through: %s", cmd, r.stdout)
		}
		if len(strings.TrimSpace(r.stdout)) > 4 { // ten seconds, where nothing but time would end it
			t.Errorf("%s: took %s ms to fail", cmd, r.stdout)
		}
	}
}

func TestRootInstallsPackage(t *testing.T) {
	t.Parallel()
	deb := buildPackage(t)
	h := newHome(t)
	name := h.create()
	h.ok("cp", deb, name+":/tmp/hello.deb")
	h.ok("exec", "--user", "root", name, "--", "dpkg", "-i", "/tmp/hello.deb")
	if got := h.ok("exec", name, "--", "carboy-hello"); got != "hello from a package\n" {
		t.Errorf("the package's command printed %q", got)
	}
	if _, err := exec.LookPath("carboy-hello"); err == nil {
		t.Error("the package was installed on the host")
	}
	// What root changed is kept over a stop.
	h.ok("stop", name)
	h.ok("start", name)
	if got := h.ok("exec", name, "--", "carboy-hello"); got != "hello from a package\n" {
		t.Errorf("after stop and start it printed %q", got)
	}
}

// buildPackage makes a Debian package with one command.
func buildPackage(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "pkg")
	files := map[string]string{
		"DEBIAN/control":       "Package: carboy-hello\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: says hello\n",
		"DEBIAN/postinst":      "#!/bin/sh\nset -e\nid -u > /usr/share/carboy-hello-installed-by\n",
		"usr/bin/carboy-hello": "#!/bin/sh\necho hello from a package\n",
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o755)
		if strings.HasSuffix(name, "control") {
			mode = 0o644
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	deb := filepath.Join(filepath.Dir(root), "hello.deb")
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "-b", root, deb).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	return deb
}

// reach tries, from inside, everything that could lead to the guest agent.
const reach = `
import os, socket, signal, ctypes, glob
def tried(what, f):
    try:
        r = f()
    except OSError as e:
        return
    print("REACHED", what, r)
for d, dirs, files in os.walk("/", followlinks=False):
    if d.startswith(("/proc", "/sys")):
        dirs[:] = []
        continue
    if d in ("/usr/lib", "/usr/share", "/usr/include", "/usr/local", "/usr/src") or d.startswith("/root/."):
        dirs[:] = []  # the host image's own, and large
        continue
    for n in files:
        p = os.path.join(d, n)
        if "carboy-guest" in n or n == "agent.sock":
            print("SEEN", p)
        try:
            import stat
            if stat.S_ISSOCK(os.lstat(p).st_mode):
                s = socket.socket(socket.AF_UNIX); s.settimeout(1)
                tried("socket " + p, lambda: s.connect(p))
        except OSError:
            pass
if os.path.isdir("/run/carboy"):
    for n in os.listdir("/run/carboy"):
        print("SEEN /run/carboy/" + n)
for line in open("/proc/net/unix").read().splitlines()[1:]:
    name = line.split()[-1]
    if name.startswith("@"):
        s = socket.socket(socket.AF_UNIX); s.settimeout(1)
        tried("abstract " + name, lambda: s.connect("\0" + name[1:]))
for fam, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    for port in list(range(1, 200)) + list(range(49970, 50000)):
        s = socket.socket(fam); s.settimeout(0.2)
        tried("port %s %d" % (host, port), lambda: s.connect((host, port)))
        s.close()
libc = ctypes.CDLL(None, use_errno=True)
for pid in [int(p) for p in os.listdir("/proc") if p.isdigit()]:
    if pid in (os.getpid(), os.getppid()):
        continue
    cmd = open("/proc/%d/cmdline" % pid).read()
    own = os.stat("/proc/%d" % pid).st_uid == os.getuid() and "carboy" not in cmd
    if own:
        continue
    if pid == 1:  # the commands' own init: it has a look of its own, below
        continue
    if libc.ptrace(16, pid, 0, 0) == 0:
        print("REACHED ptrace", pid, cmd)
    for what in ("root", "cwd", "exe", "mem", "environ", "fd"):
        p = "/proc/%d/%s" % (pid, what)
        tried(p, lambda: os.listdir(p) if what in ("root", "cwd", "fd") else open(p, "rb").read(1))
if libc.ptrace(16, 1, 0, 0) == 0:
    print("REACHED ptrace init")
for what in ("root", "cwd"):
    tried("/proc/1/" + what + "/run/carboy/agent.sock", lambda: os.stat("/proc/1/" + what + "/run/carboy/agent.sock"))
for what in ("mem", "environ"):
    tried("/proc/1/" + what, lambda: open("/proc/1/" + what, "rb").read(1) or 1 / 0)
try:
    for fd in os.listdir("/proc/1/fd"):
        to = os.readlink("/proc/1/fd/" + fd)
        if to != "/dev/null" and not to.startswith("anon_inode:"):
            print("REACHED init's descriptor", fd, to)
except OSError:
    pass
print("END", os.getuid())
`

func TestAgentOutOfReach(t *testing.T) {
	h := newHome(t)
	name := h.create()
	for _, user := range []string{"user", "root"} {
		t.Run(user, func(t *testing.T) {
			r := h.run(strings.NewReader(reach), "exec", "-i", "--user", user, name, "--", "python3", "-")
			if !strings.Contains(r.stdout, "END") {
				t.Fatalf("the probe did not end: %+v", r)
			}
			for line := range strings.Lines(r.stdout) {
				if strings.HasPrefix(line, "REACHED") || strings.HasPrefix(line, "SEEN") {
					t.Errorf("as %s: %s", user, line)
				}
			}
			// kill -9 of everything in sight leaves the agent answering.
			h.run(nil, "exec", "--user", user, name, "--", "sh", "-c", "kill -9 1; kill -9 -1")
			if got := h.ok("exec", name, "--", "echo", "alive"); got != "alive\n" {
				t.Errorf("after kill -9 by %s the agent answered %q", user, got)
			}
		})
	}
}

func TestNoSetIDFiles(t *testing.T) {
	h := newHome(t)
	ws := filepath.Join(h.dir, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	r := h.run(nil, "run", "--workspace", ws+":rw", "--", "sh", "-c", "cp /bin/true t && chmod 4755 t; echo $?; chmod 2755 t; echo $?; ls -l t | cut -c1-10")
	if want := "1\n1\n-rwxr-xr-x\n"; r.stdout != want {
		t.Errorf("stdout %q, want %q\nstderr: %s", r.stdout, want, r.stderr)
	}
	st, err := os.Stat(filepath.Join(ws, "t"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("mode on the host: %v", st.Mode())
	}
}

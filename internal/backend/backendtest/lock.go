package backendtest

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/guest"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// change tries to change the workspace in each way, and prints what could be done.
const change = `
import ctypes, os, socket
os.chdir("/workspace")
rename = ctypes.CDLL(None).renameat2
def made(path, flags=os.O_WRONLY): os.close(os.open(path, flags))
def exchange():
    if rename(-100, b"f", -100, b"f2", 2): raise OSError
attempts = {
    "other": lambda: made("/tmp/other", os.O_WRONLY | os.O_CREAT), "write": lambda: made("f"),
    "make": lambda: made("new", os.O_WRONLY | os.O_CREAT), "directory": lambda: os.mkdir("sub"), "link": lambda: os.link("f", "l"),
    "symlink": lambda: os.symlink("f", "s"), "exchange": exchange, "pipe": lambda: os.mkfifo("p"), "truncate": lambda: os.truncate("f2", 1),
    "nameless": lambda: made(".", os.O_WRONLY | os.O_TMPFILE), "socket": lambda: socket.socket(socket.AF_UNIX).bind("sock"),
}
reads = os.open("f", os.O_RDONLY)
for how, f in ("", "f"), (" of what is open", reads):
    attempts.update({
        "attribute" + how: lambda f=f: os.setxattr(f, "user.x" + str(f), b"y"), "mode" + how: lambda f=f: os.chmod(f, 0o666),
        "time" + how: lambda f=f: os.utime(f), "owner" + how: lambda f=f: os.chown(f, os.getuid(), -1),
    })
attempts.update({"move": lambda: os.rename("f", "g"), "remove": lambda: os.remove("f2")})
for name, attempt in attempts.items():
    try: attempt(); print(name)
    except OSError: pass
`

// begun is what change is tried on.
const begun = `cd /workspace && rm -rf f g f2 new sub l s p sock put && echo one >f && echo two >f2 && chmod 666 f f2`

// anyhow is what change can do to a workspace that is written to, at least: file systems differ in the rest.
var anyhow = []string{
	"other", "write", "make", "directory", "symlink", "truncate", "mode", "time", "mode of what is open", "time of what is open", "move", "remove",
}

// holding has a file of the workspace open in some way, once it has printed "ready", and tries to write by
// what it has at each line of its input.
const holding = `
import array, ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
how, path = sys.argv[1], "/workspace/held"
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 4096)
here = os.open("/workspace", os.O_RDONLY)
a, b = socket.socketpair()
if how in ("mapped", "mapped-to-read"):
    libc.mmap(None, 4096, 3 if how == "mapped" else 1, 1, fd, 0)
if how == "in-a-socket":
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
if how != "open":
    os.close(fd)
reads = os.open(path, os.O_RDONLY)
tries = {
    "through-its-descriptor": lambda: os.open(f"/proc/self/fd/{reads}", os.O_WRONLY),
    "through-its-directory": lambda: os.open("held", os.O_WRONLY, dir_fd=here),
    "by-its-working-directory": lambda: os.open("made", os.O_WRONLY | os.O_CREAT),
    "in-a-user-namespace": lambda: alone(0x10000000),
    "in-a-mount-namespace": lambda: alone(0x10020000),
    "in-a-clone-with-mounts": lambda: cloned(0x10020000),
}
class Args(ctypes.Structure): _fields_ = [("flags", ctypes.c_uint64), ("other", ctypes.c_uint64 * 3), ("signal", ctypes.c_uint64), ("rest", ctypes.c_uint64 * 3)]
def cloned(flags):
    libc.syscall.restype = ctypes.c_long
    pid = libc.syscall(435, ctypes.byref(Args(flags=flags, signal=17)), 64)
    if pid == 0: os._exit(0 if os.access(path, os.W_OK) else 2)
    if pid < 0 or os.waitpid(pid, 0)[1]: raise OSError
def alone(flags):
    pid = os.fork()
    if pid == 0:
        os._exit(1 if libc.unshare(flags) else 0 if os.access(path, os.W_OK) and os.open(path, os.O_WRONLY) else 2)
    if os.waitpid(pid, 0)[1]: raise OSError
os.chdir("/workspace")
print(os.getpid(), "ready", sep="\n", flush=True)
for line in sys.stdin:
    for name, attempt in tries.items():
        try:
            made = attempt()
            print(name)
            if made: os.close(made)
        except OSError: pass
    print("done", flush=True)
`

// holder runs holding.
func holder(how string) *guestv1.Command {
	return with(argv("python3", "-c", holding, how), func(c *guestv1.Command) { c.Stdin = true })
}

// testLock: what is locked nobody inside can write to, whatever it has open from before, until it is unlocked.
func testLock(t *testing.T, s *suite) {
	w := s.open(t)
	l := w.Capabilities().Lock
	if l == nil {
		t.Fatal("it locks nothing")
	}
	t.Run("directory", func(t *testing.T) {
		dir := tree(t, map[string]string{"f": "one\n"})
		lockIs(t, w, l, []string{"user"}, over(t, sandbox.WorkspaceWritable, dir))
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("host\n"), 0o644); err != nil {
			t.Error(err) // nobody outside is bound
		}
	})
	t.Run("volume", func(t *testing.T) {
		id := w.makeVolume(t, disk.Size{Bytes: 16 << 20, Inodes: 256})
		b := w.begin(t, volumeAt(id, false))
		lockIs(t, w, l, s.users(), volumeAt(id, false))
		b.says(t, "cd /workspace; echo two >h; cat h", "two\n") // another instance is not bound
	})
	for _, how := range []string{"open", "mapped", "mapped-to-read", "in-a-socket"} {
		t.Run(how, func(t *testing.T) { lockMeets(t, w, l, how) })
	}
	t.Run("closed", func(t *testing.T) { lockHolds(t, w, l) })
	t.Run("writers-ended", func(t *testing.T) { lockEnds(t, w, l) })
	t.Run("parts", func(t *testing.T) { lockParts(t, s, w, l) })
	if w.Name() != sandbox.WallProcess { // behind which every workspace is a mount
		t.Run("not-a-mount", func(t *testing.T) {
			b := w.begin(t)
			if _, err := l.Lock(t.Context(), b.id, sandbox.Lock{Access: whole}); err == nil {
				t.Error("a workspace that is no mount was locked")
			}
			b.says(t, "cd /workspace; echo x >f; cat f", "x\n")
		})
	}
}

// lockNow locks, and fails where something is in the way.
func lockNow(t *testing.T, l sandbox.Locker, b *instance, readOnly bool) {
	t.Helper()
	setAccess(t, l, b, sandbox.AccessList(nil).With(".", readOnly))
}

// setAccess locks what a list says, and fails where something is in the way.
func setAccess(t *testing.T, l sandbox.Locker, b *instance, access sandbox.AccessList) {
	t.Helper()
	out, err := l.Lock(t.Context(), b.id, sandbox.Lock{Access: access})
	if err != nil || out.Busy {
		t.Fatalf("lock %v = %+v, %v", access, out, err)
	}
}

// whole is a list that locks all.
var whole = sandbox.AccessList{{Path: ".", ReadOnly: true}}

// lockIs locks an instance's workspace, stops and starts it, and unlocks it.
func lockIs(t *testing.T, w *world, l sandbox.Locker, users []string, setting func(*sandbox.Sandbox)) {
	b := w.begin(t, setting)
	b.sh(t, users[len(users)-1], begun)
	none := func(when string) {
		t.Helper()
		for _, user := range users {
			if got := b.changes(t, user); !slices.Equal(got, []string{"other"}) {
				t.Errorf("%s, as %s, could be done: %q", when, user, got)
			}
			if status, _ := b.request(t, http.MethodPost, user, "/workspace/put", strings.NewReader("x")); status == http.StatusOK {
				t.Errorf("%s, as %s: the file service wrote a file", when, user)
			}
		}
	}
	for range 2 { // locking what is locked changes nothing
		lockNow(t, l, b, true)
		none("locked")
	}
	w.mustStop(t, b.id)
	b.sb.Access = whole
	b = w.restart(t, b.sb)
	none("started as locked")
	for range 2 {
		lockNow(t, l, b, false)
	}
	for _, user := range users {
		b.sh(t, user, begun)
		got := b.changes(t, user)
		for _, what := range anyhow {
			if !slices.Contains(got, what) {
				t.Errorf("unlocked, as %s, could not be done: %s", user, what)
			}
		}
	}
	if status, body := b.request(t, http.MethodPost, "", "/workspace/put", strings.NewReader("x")); status != http.StatusOK {
		t.Errorf("unlocked: the file service: %d %s", status, body)
	}
}

// changes is what change could do.
func (b *instance) changes(t *testing.T, user string) []string {
	t.Helper()
	e := b.run(t, with(argv("python3", "-c", change), func(c *guestv1.Command) { c.User = user }))
	if e.exit.GetCode() != 0 {
		t.Errorf("as %s: %v, %s", user, e.exit, e.stderr)
	}
	return strings.Split(strings.TrimSuffix(e.stdout, "\n"), "\n")
}

// lockMeets locks while a program has a file open for writing, which is in the way and is named.
func lockMeets(t *testing.T, w *world, l sandbox.Locker, how string) {
	b := w.begin(t, over(t, sandbox.WorkspaceWritable, tree(t, nil)))
	r := b.begin(t, holder(how))
	r.awaits("ready\n")
	out, err := l.Lock(t.Context(), b.id, sandbox.Lock{Access: whole})
	if err != nil || !out.Busy {
		t.Fatalf("lock = %+v, %v", out, err)
	}
	b.says(t, "cd /workspace; echo x >f; cat f", "x\n")
	if how == "in-a-socket" { // which nobody can see
		return
	}
	pid, _, _ := strings.Cut(r.out.String(), "\n")
	want := sandbox.Writer{Path: "/workspace/held", How: guest.HowMaps}
	if how == "open" {
		want.How = guest.HowWrites
	}
	for i := range out.InWay {
		if strconv.Itoa(out.InWay[i].PID) != pid || !strings.HasPrefix(out.InWay[i].Program, "python3") {
			t.Errorf("in the way is %s, and pid %s is", out.InWay[i], pid)
		}
		out.InWay[i].PID, out.InWay[i].Program = 0, ""
	}
	if d := cmp.Diff([]sandbox.Writer{want}, out.InWay); d != "" {
		t.Errorf("in the way -want +got\n%s", d)
	}
}

// lockHolds locks where a program has closed what it wrote, and has all else there open.
func lockHolds(t *testing.T, w *world, l sandbox.Locker) {
	b := w.begin(t, over(t, sandbox.WorkspaceWritable, tree(t, nil)))
	r := b.begin(t, holder("closed"))
	r.awaits("ready\n")
	try := func() string {
		r.write("try\n", false)
		before := r.seen
		r.awaits("done\n")
		return strings.TrimSuffix(r.out.String()[before:r.seen], "done\n")
	}
	const all = "through-its-descriptor\nthrough-its-directory\nby-its-working-directory\n"
	if got := try(); !strings.HasPrefix(got, all) || strings.Contains(got, "mount") {
		t.Fatalf("before, it could write:\n%s", got)
	}
	lockNow(t, l, b, true)
	if got := try(); got != "" {
		t.Errorf("locked, it could write:\n%s", got)
	}
	lockNow(t, l, b, false)
	if got := try(); !strings.HasPrefix(got, all) {
		t.Errorf("unlocked, it could write:\n%s", got)
	}
}

// lockEnds locks while programs have files open, which are ended, and nothing else is.
func lockEnds(t *testing.T, w *world, l sandbox.Locker) {
	b := w.begin(t, over(t, sandbox.WorkspaceWritable, tree(t, nil)))
	bystander := b.begin(t, holder("closed"))
	bystander.awaits("ready\n")
	var writers []*running
	for _, how := range []string{"open", "mapped"} {
		r := b.begin(t, holder(how))
		r.awaits("ready\n")
		writers = append(writers, r)
	}
	out, err := l.Lock(t.Context(), b.id, sandbox.Lock{Access: whole, EndWriters: true})
	if err != nil || out.Busy || len(out.Ended) != len(writers) {
		t.Fatalf("lock = %+v, %v", out, err)
	}
	for _, r := range writers {
		if e := r.end(); e.exit.GetSignal() != 9 {
			t.Errorf("a writer ended by %v", e.exit)
		}
	}
	bystander.write("try\n", false)
	bystander.awaits("done\n")
	b.says(t, "touch /workspace/x 2>/dev/null || echo refused", "refused\n")
}

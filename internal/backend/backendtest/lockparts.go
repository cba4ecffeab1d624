package backendtest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/guest"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// keeping has something in /workspace/src, or elsewhere, by which it could go on writing once that is locked. It prints its
// number and "ready", and at each line of its input what it could do.
const keeping = `
import array, ctypes, os, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
how, src, fd = sys.argv[1], "/workspace/src", None
a, b = socket.socketpair()
os.chdir("/")
if how == "works in": os.chdir(src + "/deep")
if how == "works elsewhere": os.chdir("/workspace/other")
if how in ("directory", "headless"): fd = os.open(src, os.O_RDONLY)
if how == "path": fd = os.open(src + "/deep", os.O_PATH)
if how == "read": fd = os.open(src + "/f", os.O_RDONLY)
if how == "written": fd = os.open(src + "/f", os.O_RDWR)
if how in ("mapped", "headless mapped"):
    m = os.open(src + "/f", os.O_RDWR)
    libc.mmap(None, 4096, 3, 1, m, 0)
    os.close(m)
if how == "in a socket":
    d = os.open(src, os.O_RDONLY)
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [d]))])
    os.close(d)
if how == "in a thread":
    ready, go = threading.Event(), threading.Event()
    def apart():
        libc.unshare(0x400)
        os.open(src, os.O_RDONLY)
        ready.set(); go.wait()
    threading.Thread(target=apart, daemon=True).start()
    ready.wait()
tries = {
    "by name": lambda: os.open(src + "/f", os.O_WRONLY), "make": lambda: os.open(src + "/made", os.O_WRONLY | os.O_CREAT),
    "deep": lambda: os.mkdir(src + "/deep/made"), "by what is around": lambda: os.open("src/f", os.O_WRONLY, dir_fd=os.open("/workspace", os.O_RDONLY)),
    "by another way": lambda: os.open("/workspace/other/../src/f", os.O_WRONLY), "by a link": lambda: os.open("/workspace/other/link", os.O_WRONLY),
    "rename it": lambda: os.rename(src, "/workspace/moved"), "move out": lambda: os.rename(src + "/f", "/workspace/f"),
    "move in": lambda: os.rename("/workspace/other/g", src + "/g"), "link out": lambda: os.link(src + "/f", "/workspace/f"),
    "link in": lambda: os.link("/workspace/other/g", src + "/g"), "remove it": lambda: os.rmdir(src), "replace it": lambda: os.rename("/workspace/other", src),
    "by its working directory": lambda: os.open("made", os.O_WRONLY | os.O_CREAT),
    "through its descriptor": lambda: os.open(f"/proc/self/fd/{fd}", os.O_WRONLY), "in its directory": lambda: os.open("f", os.O_WRONLY, dir_fd=fd),
    "elsewhere": lambda: os.open("/workspace/other/made", os.O_WRONLY | os.O_CREAT),
}
def serve():
    print(os.getpid(), "ready", sep="\n", flush=True)
    for line in sys.stdin:
        for name, attempt in tries.items():
            if line.strip() != "all" and not name.startswith(line.strip()): continue
            try:
                made = attempt()
                print(name)
                if made: os.close(made)
            except (OSError, TypeError): pass
        print("done", flush=True)
if how.startswith("headless"):
    threading.Thread(target=serve).start()
    libc.syscall(60, 0) # of this thread alone
serve()
`

const partsBegun = `cd /workspace && mkdir -p src/deep other && echo one >src/f && echo two >other/g && ln -sf ../src/f other/link && chmod -R a+rwX .`

// keeper runs keeping, and returns how to have it try.
func keeper(t *testing.T, b *instance, user, how string) (r *running, try func(what string) string) {
	r = b.begin(t, with(argv("python3", "-c", keeping, how), func(c *guestv1.Command) { c.Stdin, c.User = true, user }))
	r.awaits("ready\n")
	return r, func(what string) string {
		before := r.seen
		r.write(what+"\n", false)
		r.awaits("done\n")
		return strings.TrimSuffix(r.out.String()[before:r.seen], "done\n")
	}
}

// lockParts: directories of a workspace are locked apart, by each of the ways that are left to whoever was there before.
func lockParts(t *testing.T, s *suite, w *world, l sandbox.Locker) {
	src := sandbox.AccessList{{Path: "src", ReadOnly: true}}
	id := w.makeVolume(t, disk.Size{Bytes: 16 << 20, Inodes: 1024})
	at := volumeAt(id, false)
	t.Run("apart", func(t *testing.T) {
		b := w.begin(t, at)
		b.sh(t, "", partsBegun)
		for _, user := range s.users() {
			setAccess(t, l, b, nil)
			_, try := keeper(t, b, user, "works elsewhere")
			setAccess(t, l, b, src)
			setAccess(t, l, b, src)
			if got := try("all"); got != "by its working directory\nelsewhere\n" {
				t.Errorf("locked, as %s, could be done:\n%s", user, got)
			}
			if status, _ := b.request(t, http.MethodPost, user, "/workspace/src/put", strings.NewReader("x")); status == http.StatusOK {
				t.Errorf("locked, as %s: the file service wrote a file", user)
			}
		}
		w.mustStop(t, b.id)
		b.sb.Access = src
		b = w.restart(t, b.sb)
		_, try := keeper(t, b, "", "works elsewhere")
		if got := try("all"); got != "by its working directory\nelsewhere\n" {
			t.Errorf("started as locked, could be done:\n%s", got)
		}
		setAccess(t, l, b, nil)
		if got := try("by"); got != "by name\nby what is around\nby another way\nby a link\nby its working directory\n" {
			t.Errorf("unlocked, could be done:\n%s", got)
		}
		b.sh(t, "", "cd /workspace && mv src was && mv was src && ln src/f other/f && rm other/f other/made")
	})
	t.Run("within", func(t *testing.T) {
		b := w.begin(t, at)
		b.sh(t, "", partsBegun)
		try := func() string {
			return b.sh(t, "", "cd /workspace; for d in . src src/deep other; do touch $d/t 2>/dev/null && echo $d; rm -f $d/t; done")
		}
		for _, step := range []struct {
			access sandbox.AccessList
			want   string
		}{
			{whole.With("src", false), "src\nsrc/deep\n"},
			{whole.With("src", false).With("src/deep", true), "src\n"},
			{whole, ""},
			{sandbox.AccessList(nil).With("src/deep", true), ".\nsrc\nother\n"},
			{sandbox.AccessList(nil).With("src", true), ".\nother\n"},
			{nil, ".\nsrc\nsrc/deep\nother\n"},
		} {
			setAccess(t, l, b, step.access)
			if got := try(); got != step.want {
				t.Errorf("%v: written to %q, want %q", step.access, got, step.want)
			}
		}
	})
	t.Run("led-to", func(t *testing.T) { lockPartLedTo(t, s, w, l, at) })
	for how, want := range map[string]guest.How{
		"works in": guest.HowWorksIn, "directory": guest.HowReaches, "path": guest.HowReaches, "read": guest.HowReaches,
		"written": guest.HowReaches, "mapped": guest.HowMaps, "in a thread": guest.HowReaches, "in a socket": guest.HowPasses, "headless": guest.HowReaches, "headless mapped": guest.HowMaps,
	} {
		t.Run(strings.ReplaceAll(how, " ", "-"), func(t *testing.T) {
			lockPartMeets(t, w, l, at, how, want)
		})
	}
	t.Run("linked", func(t *testing.T) {
		b := w.begin(t, at)
		b.sh(t, "", partsBegun+" && ln src/f other/outside")
		out, err := l.Lock(t.Context(), b.id, sandbox.Lock{Access: src, EndWriters: true})
		if err != nil || !out.Busy || len(out.InWay) != 1 || out.InWay[0] != (sandbox.Writer{Path: "/workspace/src/f", How: guest.HowLinked}) {
			t.Errorf("lock = %+v, %v", out, err)
		}
		b.sh(t, "", "cd /workspace && echo three >src/f && mv other/outside src/inside")
		setAccess(t, l, b, src)
		b.sh(t, "", "cd /workspace && ! touch src/f 2>/dev/null")
	})
	t.Run("refused", func(t *testing.T) {
		b := w.begin(t, at)
		b.sh(t, "", partsBegun+" && ln -sfn src link")
		for _, dir := range []string{"none", "link", "src/f", "link/deep"} {
			if out, err := l.Lock(t.Context(), b.id, sandbox.Lock{Access: sandbox.AccessList{{Path: "other", ReadOnly: true}}.With(dir, true)}); err == nil {
				t.Errorf("%s: %+v", dir, out)
			}
			b.sh(t, "", "touch /workspace/other/t /workspace/src/t") // nothing is changed
		}
	})
}

// lockPartMeets locks a directory while a program has something of it: that is named, and ended where that is asked for.
func lockPartMeets(t *testing.T, w *world, l sandbox.Locker, at func(*sandbox.Sandbox), how string, want guest.How) {
	lock := sandbox.Lock{Access: sandbox.AccessList{{Path: "src", ReadOnly: true}}}
	b := w.begin(t, at)
	b.sh(t, "", partsBegun)
	bystander, _ := keeper(t, b, "", "works elsewhere")
	r, try := keeper(t, b, "", how)
	out, err := l.Lock(t.Context(), b.id, lock)
	if err != nil || !out.Busy || len(out.InWay) != 1 {
		t.Fatalf("lock = %+v, %v", out, err)
	}
	pid, _, _ := strings.Cut(r.out.String(), "\n")
	if h := out.InWay[0]; strconv.Itoa(h.PID) != pid || !strings.HasPrefix(h.Program, "python3") || h.How != want && !(how == "headless mapped" && h.How == guest.HowReaches) { // gVisor shows no maps
		t.Errorf("in the way is %s (%s), and pid %s is", h, h.How, pid)
	}
	if got := try("make"); got != "make\n" {
		t.Errorf("although it was not locked, it could %q", got)
	}
	lock.EndWriters = true
	out, err = l.Lock(t.Context(), b.id, lock)
	if err != nil || out.Busy || len(out.Ended) != 1 {
		t.Fatalf("lock = %+v, %v", out, err)
	}
	if e := r.end(); e.exit.GetSignal() != 9 {
		t.Errorf("it ended by %v", e.exit)
	}
	bystander.write("by\n", false)
	bystander.awaits("by its working directory\ndone\n")
	b.says(t, "touch /workspace/src/x 2>/dev/null || echo refused; touch /workspace/x && echo written", "refused\nwritten\n")
}

// lockPartLedTo: what leads to a directory that is locked stays where it is.
func lockPartLedTo(t *testing.T, s *suite, w *world, l sandbox.Locker, at func(*sandbox.Sandbox)) {
	b := w.begin(t, at)
	b.sh(t, "", partsBegun)
	lock := sandbox.Lock{Access: sandbox.AccessList{{Path: "src/deep", ReadOnly: true}}}
	reader, _ := keeper(t, b, "", "read") // a file leads nowhere
	r, _ := keeper(t, b, "", "directory")
	out, err := l.Lock(t.Context(), b.id, lock)
	if err != nil || !out.Busy || len(out.InWay) != 1 || out.InWay[0].How != guest.HowReaches || out.InWay[0].Path != "/workspace/src" {
		t.Fatalf("lock = %+v, %v", out, err)
	}
	r.write("", true)
	r.end()
	setAccess(t, l, b, lock.Access)
	for _, user := range s.users() {
		b.sh(t, user, "cd /workspace && ! mv src was 2>/dev/null && ! mv -T other src 2>/dev/null && ! rmdir src/deep 2>/dev/null && test -d src/deep && ! touch src/deep/t 2>/dev/null && touch src/t && rm src/t")
	}
	reader.write("", true)
	reader.end()
	inside, _ := keeper(t, b, "", "works in")
	setAccess(t, l, b, nil)
	b.sh(t, "", "cd /workspace && touch src/deep/t")
	inside.write("", true)
	inside.end()
	moved := func() bool {
		return b.run(t, command("", "cd /workspace && mv src was && mv was src")).exit.GetCode() == 0
	}
	if !patience.Until(10*time.Second, moved) {
		t.Error("what leads to what was locked stays a mount, and nobody is in it")
	}
	setAccess(t, l, b, lock.Access)
	b.sh(t, "", "mv /workspace/src /workspace/was 2>/dev/null && exit 1 || true")
	w.mustStop(t, b.id)
}

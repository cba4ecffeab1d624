package jail_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// playground is a directory of the command user's.
func playground(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "jail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return ground(t, dir)
}

// ground makes dir, if it is not there, and has the command user own it.
func ground(t testing.TB, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(nobody.UID), int(nobody.GID)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// in runs a shell script in a directory, with tools of this machine.
func in(t testing.TB, j *jail.Jail, dir string, u jail.User, script string) result {
	t.Helper()
	r, err := run(t, j, jail.Command{
		Argv: []string{"bash", "-c", "exec 2>&1; " + script}, User: u, Dir: dir,
		Env: []string{"PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/bin", "HOME=" + dir, "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local", "LC_ALL=C.UTF-8"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Ordinary programs run in a strict jail.
func TestStrictAllows(t *testing.T) {
	all := playground(t) // removed once what is left in the background has ended with the jail
	j := start(t, jail.Config{Strict: true, Hide: []string{hidden(t)}, OOMScore: 500})
	tests := []struct{ name, tool, script, want string }{
		{"bash", "bash", `x=$(echo a | tr a b); (exit 3) & wait $!; echo $x$?`, "b3\n"},
		{"files", "cp", `mkdir -p a/b && echo x >a/f && mv a/f a/b/g && ln a/b/g h && ln -s h s && cp -a a c && chmod 700 c && touch -d yesterday h && rm -r a && cat c/b/g s && mkfifo p && ls | wc -l`, "x\nx\n4\n"},
		{"devices", "dd", `head -c3 /dev/zero | wc -c; echo x >/dev/null; head -c9 /dev/urandom | wc -c; dd if=/dev/zero of=/dev/full 2>/dev/null || echo full`, "3\n9\nfull\n"},
		{"proc-self", "bash", `echo 700 >/proc/self/oom_score_adj && cat /proc/self/oom_score_adj; sh -c 'echo new >/proc/self/comm; read c </proc/$$/comm; echo $c'`, "700\nnew\n"},
		{"shared-memory", "bash", `echo x >/dev/shm/jail-test && cat /dev/shm/jail-test && rm /dev/shm/jail-test`, "x\n"},
		{"python", "/usr/bin/python3", `/usr/bin/python3 -c '
import threading, multiprocessing, subprocess, socket, os, tempfile, mmap
def f(q): q.put(os.getpid())
r = []
ts = [threading.Thread(target=lambda: r.append(1)) for _ in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
q = multiprocessing.Queue()
ps = [multiprocessing.Process(target=f, args=(q,)) for _ in range(3)]
[p.start() for p in ps]; n = len({q.get() for p in ps}); [p.join() for p in ps]
with multiprocessing.Pool(2) as pool: s = sum(pool.map(abs, range(-9, 0)))
a, b = socket.socketpair(); a.send(b"x"); b.recv(1)
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); c.close()
socket.getaddrinfo("localhost", 80)
m = mmap.mmap(-1, 4096); m[0] = 1
print(len(r), n, s, subprocess.check_output(["echo", "sub"]).decode().strip())'`, "8 3 45 sub\n"},
		{"node", "node", `node -e '
const { Worker } = require("worker_threads"), fs = require("fs"), cp = require("child_process"), net = require("net")
fs.writeFileSync("f", "x"); fs.watch(".").close()
const s = net.createServer(c => c.end("hi")).listen(0, "127.0.0.1", () => net.connect(s.address().port, "127.0.0.1").on("data", d => {
  new Worker("require(\"worker_threads\").parentPort.postMessage(1)", { eval: true }).on("message", m => {
    console.log(d.toString(), m, cp.execSync("echo sub").toString().trim(), fs.readFileSync("f").toString()); process.exit() }) }))'`, "hi 1 sub x\n"},
		{"git", "git", `git init -q r && cd r && git config user.email a@b && git config user.name n && echo x >f && git add f && git commit -qm c && git clone -q . ../k && git -C ../k gc -q && git log --format=%s`, "c\n"},
		{"gcc", "gcc", `printf '#include <stdio.h>\n#include <pthread.h>\nvoid*f(void*a){return a;}int main(){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);puts("built");}' >m.c && gcc -O2 -pthread m.c -o m && ./m`, "built\n"},
		{"go", "go", `printf 'package m\nfunc F(n int) int { if n < 2 { return n }; return F(n-1) + F(n-2) }' >m.go && go tool compile -p m -o m.o m.go && test -s m.o && echo compiled`, "compiled\n"},
		{"perl", "perl", `perl -e 'my $p = fork; if (!$p) { exit 4 } waitpid $p, 0; print $? >> 8, "\n"'`, "4\n"},
		{"java", "java", `printf 'class M { public static void main(String[] a) throws Exception { var t = new Thread(() -> System.out.println("thread")); t.start(); t.join(); } }' >M.java && java M.java`, "thread\n"},
		{"strace", "strace", `strace -f -o log true && grep -c execve log`, "1\n"},
		{"tmux", "tmux", `tmux -S ./s -f /dev/null new-session -d 'echo in >out; sleep 9' && while [ ! -s out ]; do :; done; cat out; tmux -S ./s kill-server`, "in\n"},
		{"script", "script", `script -qec 'tty >/dev/null && stty size >/dev/null && echo terminal' /dev/null | tr -d '\r'`, "terminal\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.tool); err != nil {
				t.Skip(err)
			}
			got := in(t, j, ground(t, filepath.Join(all, tt.name)), nobody, tt.script)
			if !strings.HasSuffix(got.out, tt.want) {
				t.Errorf("got %q (%s), want %q at the end", got.out, got.status, tt.want)
			}
		})
	}
}

// hidden is a directory with something in it.
func hidden(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("/run", "jail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// What a strict jail refuses, and an ordinary one does not.
func TestStrictRefuses(t *testing.T) {
	hide := hidden(t)
	strict := start(t, jail.Config{Strict: true, Hide: []string{hide}})
	free := start(t, jail.Config{Hide: []string{hide}})
	tests := []struct {
		name, script string
		user         jail.User
		strict, free string
	}{
		{"user-namespace", "unshare -U true && echo out", nobody, "unshare: unshare failed: Operation not permitted\n", "out\n"},
		{"mount-as-root-of-a-namespace", "unshare -Urm mount -t tmpfs none /mnt && echo out", nobody, "unshare: unshare failed: Operation not permitted\n", "unshare: cannot change root filesystem propagation: Operation not permitted\n"},
		{"chroot", "chroot / echo out", jail.User{}, "chroot: cannot change root directory to '/': Operation not permitted\n", "out\n"},
		{"core-limit", "ulimit -Hc", nobody, "0\n", "unlimited\n"},
		{"write-to-sys", "echo x >/sys/kernel/nothing", jail.User{}, "bash: line 1: /sys/kernel/nothing: Permission denied\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := playground(t)
			if got := in(t, strict, dir, tt.user, tt.script).out; got != tt.strict {
				t.Errorf("strict: got %q, want %q", got, tt.strict)
			}
			if tt.name == "core-limit" || tt.free == "" {
				return // limits are the process's, which both jails share here
			}
			if got := in(t, free, dir, tt.user, tt.script).out; got != tt.free {
				t.Errorf("free: got %q, want %q", got, tt.free)
			}
		})
	}
}

// A program of another architecture is ended at its first call.
func TestForeignProgram(t *testing.T) {
	dir := playground(t)
	name := filepath.Join(dir, "i386")
	if err := os.WriteFile(name, i386(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	plain := exec.Command(name)
	if err := plain.Run(); plain.ProcessState == nil || plain.ProcessState.ExitCode() != 7 {
		t.Skip("this kernel does not run programs of i386:", err)
	}
	r, err := run(t, start(t, jail.Config{Strict: true}), jail.Command{Argv: []string{name}, User: nobody})
	if err != nil {
		t.Fatal(err)
	}
	if want := (jail.Status{Code: 128 + int(unix.SIGSYS), Signal: syscall.SIGSYS}); r.status != want {
		t.Errorf("got %v, want %v", r.status, want)
	}
}

// i386 is a program that exits with 7 by the call gate of that architecture:
// mov eax, 1; mov ebx, 7; int 0x80.
func i386() []byte {
	const base, header = 0x08048000, 52 + 32
	code := []byte{0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80}
	size := uint32(header + len(code))
	var b []byte
	b = append(b, "\x7fELF\x01\x01\x01"...)
	b = append(b, make([]byte, 9)...)
	for _, v := range []uint16{2, 3} { // executable, 80386
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	for _, v := range []uint32{1, base + header, 52, 0, 0} { // version, entry, program headers, no sections, no flags
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	for _, v := range []uint16{52, 32, 1, 0, 0, 0} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	for _, v := range []uint32{1, 0, base, base, size, size, 5, 0x1000} { // load, readable and executable
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return append(b, code...)
}

// Commands of one jail are not walled off from each other.
func TestStrictTogether(t *testing.T) {
	j := start(t, jail.Config{Strict: true})
	dir := playground(t)
	sleeper, r := background(t, j, dir, "echo $$; exec sleep 1000")
	pid := firstLine(t, r)
	if got := in(t, j, dir, nobody, "kill -TERM "+pid+" && echo sent").out; got != "sent\n" {
		t.Errorf("kill: %q", got)
	}
	if got := sleeper.Wait(); got.Signal != syscall.SIGTERM {
		t.Errorf("the other command: %v", got)
	}
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{`"sock"`, `"\\0jail-test"`} {
		server, r := background(t, j, dir, `/usr/bin/python3 -c 's = __import__("socket"); l = s.socket(s.AF_UNIX); l.bind(`+name+`); l.listen(); print("up", flush=True); l.accept()[0].send(b"hello")'`)
		firstLine(t, r)
		got := in(t, j, dir, nobody, `/usr/bin/python3 -c 's = __import__("socket"); c = s.socket(s.AF_UNIX); c.connect(`+name+`); print(c.recv(9).decode())'`).out
		if got != "hello\n" {
			t.Errorf("socket %s: %q", name, got)
		}
		server.Wait()
	}
}

// background starts a script whose output is read from what is returned.
func background(t testing.TB, j *jail.Jail, dir, script string) (*jail.Process, *os.File) {
	t.Helper()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	p, _, err := j.Spawn(jail.Command{
		Argv: []string{"bash", "-c", script}, User: nobody, Dir: dir, Env: []string{"PATH=/usr/bin:/bin"},
		Files: [3]*os.File{null, w, w},
	})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func firstLine(t testing.TB, r *os.File) string {
	t.Helper()
	var line string
	if _, err := fmt.Fscanln(r, &line); err != nil {
		t.Fatal(err)
	}
	return line
}

// What a user has of signals, timers and message queues is what all instances of
// one daemon share: commands have a part.
func TestStrictLimits(t *testing.T) {
	j := start(t, jail.Config{Strict: true, Hide: []string{hidden(t)}})
	got := in(t, j, playground(t), nobody, "ulimit -Hi; ulimit -Hq; ulimit -Hi 9999999").out
	var signals, queues int
	if n, err := fmt.Sscan(got, &signals, &queues); n != 2 || err != nil {
		t.Fatalf("%q: %v", got, err)
	}
	if most := signalsBefore / 16; signals > max(most, 1024) || queues > 256<<10 || !strings.Contains(got, "cannot modify limit") {
		t.Errorf("got %q, want %d signals and %d bytes at most, for ever", got, max(most, 1024), 256<<10)
	}
}

// signalsBefore is the limit that this process began with: jails lower it.
var signalsBefore = func() int {
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_SIGPENDING, &now) != nil {
		return 0
	}
	return int(min(now.Max, 1<<40))
}()

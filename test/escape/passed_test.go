package escape

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// passedPlaces are where two boxes could have a socket in common.
var passedPlaces = []string{"/mnt/volume/s", "/mnt/shared/s", "/workspace/s", "@passed"}

// pair is two boxes that share a volume, a mount and a workspace. The first one
// has sockets there and gives away what it has open; the second, behind the
// process wall, took what it could get and keeps it.
type pair struct {
	sender string
	disk   string   // the sender's, on the host; "" where it has none
	got    []string // what it took, and gave
}

// withPair makes a pair, calls f, and takes it away.
func (w *world) withPair(f func(*pair)) {
	w.t.Helper()
	for _, name := range []string{"passed/shared", "passed/work"} {
		if err := os.MkdirAll(w.path(name), 0o777); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Chmod(w.path(name), 0o777); err != nil {
			w.t.Fatal(err)
		}
	}
	w.ok("volume", "create", "passed")
	defer w.run(nil, "volume", "rm", "passed")
	tools := []string{"--mount", w.path(dirTools) + ":" + facts.Tools + ":ro"}
	writable := []string{"--mount", w.path("passed/shared") + ":/mnt/shared", "--workspace", w.path("passed/work") + ":rw"}
	if w.user == "root" { // who is refused where the host's own tree can be written
		writable = nil
	}
	before := w.disks()
	p := &pair{sender: w.box2(w.wall, w.user, append(append(tools, "--volume", "passed:/mnt/volume"), writable...))}
	defer w.run(nil, "rm", "-f", p.sender)
	for disk := range w.disks() {
		if !before[disk] {
			p.disk = disk
		}
	}
	receiver := w.box2(process, "user", append(tools, "--volume", "passed:/mnt/volume:ro",
		"--mount", w.path("passed/shared")+":/mnt/shared:ro", "--workspace", w.path("passed/work")+":rw"))
	defer w.run(nil, "rm", "-f", receiver)
	_, endSender := w.talk(p.sender, append([]string{"pass", "/tmp/passed"}, passedPlaces...)...)
	defer endSender()
	said, endReceiver := w.talk(receiver, append([]string{"take"}, passedPlaces...)...)
	defer endReceiver()
	for _, line := range said {
		if strings.HasPrefix(line, "got ") || strings.HasPrefix(line, "gave ") {
			p.got = append(p.got, line)
		}
	}
	if testingVerbose() {
		w.t.Logf("taken: %q", said)
	}
	f(p)
}

func (w *world) box2(wall, user string, flags []string) string {
	w.t.Helper()
	return strings.TrimSpace(w.ok(append([]string{"create", "--isolation", wall, "--user", user}, flags...)...))
}

// disks are the images of the world's boxes.
func (w *world) disks() map[string]bool {
	w.t.Helper()
	list, err := filepath.Glob(w.path("state/carboy/boxes/*/*/disk.img"))
	if err != nil {
		w.t.Fatal(err)
	}
	disks := map[string]bool{}
	for _, disk := range list {
		disks[disk] = true
	}
	return disks
}

// talk runs the probe in a box until it is ready, and returns what it said. It
// stays until it is ended.
func (w *world) talk(box string, args ...string) (said []string, end func()) {
	w.t.Helper()
	cmd := exec.Command(w.bin, append([]string{"exec", "-i", box, "--", facts.Tools + "/probe"}, args...)...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = w.env, w.dir, time.Second
	in, out := w.piped(cmd)
	end = sync.OnceFunc(func() { _, _ = in.Close(), cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return said, end
		}
		said = append(said, lines.Text())
	}
	end()
	w.t.Fatalf("the probe in %s: %q, %v", box, said, lines.Err())
	return nil, nil
}

// passedDescriptors gives what one box has open to another, and the other way, by
// sockets in all that they share. The kernel of gVisor gives nothing, and takes.
func passedDescriptors(w *world) (found []string) {
	w.withPair(func(p *pair) { found = p.got })
	return found
}

// heldAfterEnd removes a box that gave away what it had open, and looks for its
// disk among the machine's devices.
func heldAfterEnd(w *world) (found []string) {
	w.withPair(func(p *pair) {
		if p.disk == "" {
			return // without root nothing is mounted from a device
		}
		var st unix.Stat_t
		if err := unix.Stat(p.disk, &st); err != nil {
			w.t.Fatal(err)
		}
		name := fmt.Sprintf("-%x-%x", st.Dev, st.Ino) // see package hold
		device := attached(name)
		w.whole(device != "", "no device has the disk of a box that runs")
		w.ok("rm", "-f", p.sender)
		// Another's disk may have the same inode by now, and the same device: not the same use of it.
		free := patience.Until(2*time.Second, func() bool { return attached(name) != device })
		if !free {
			found = append(found, fmt.Sprintf("%s still has the disk of a box that was removed; taken: %q", device, p.got))
		}
	})
	return found
}

// attached finds the loop device of a file whose name ends so, with the number of that use of a
// device, which no other has; "" where none is.
func attached(name string) string {
	list, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range list {
		b, _ := os.ReadFile(file)
		if strings.HasSuffix(strings.TrimSuffix(strings.TrimSpace(string(b)), " (deleted)"), name) {
			seq, _ := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(file)), "diskseq"))
			return file + ", use " + strings.TrimSpace(string(seq))
		}
	}
	return ""
}

package vm

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// bootTime ends what hangs. With nothing beside it, it takes half a minute.
const bootTime = 10 * time.Minute

// inside are the tests that have to pass in there.
var inside = []string{"TestProjects", "TestProjectsBehindWalls", "TestBoxOnProject"}

func modified(t *testing.T, path string) time.Time {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.ModTime()
}

// TestGuest boots a machine that has what this kernel may lack, and runs there
// the tests of quotas that a file system enforces.
func TestGuest(t *testing.T) {
	carboy := os.Getenv("CARBOY_BIN")
	if carboy == "" {
		t.Skip("CARBOY_BIN names no binary")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("its kernel is one for amd64")
	}
	k, dir := findKernel(t), t.TempDir()
	self, project := filepath.Join(dir, "init"), filepath.Join(dir, "project.test")
	build(t, self, ".")
	build(t, project, "../../internal/session/quota/project")

	initrd, err := os.Create(filepath.Join(dir, "initrd"))
	if err != nil {
		t.Fatal(err)
	}
	defer initrd.Close()
	files := bufio.NewWriter(initrd)
	a := &archive{w: files}
	for _, d := range []string{"dev", "proc", "root", "modules"} {
		a.dir(d)
	}
	a.file("init", self)
	var order []string
	for _, path := range k.order(t, "virtio_pci", "virtio_blk", "xfs", "quota_v2", "overlay", "fuse", "loop", "veth", "tun", "nf_tables", "nft_counter") {
		order = append(order, filepath.Base(path))
		a.file("modules/"+filepath.Base(path), path)
	}
	a.entry("modules/order", 0o100644, []byte(strings.Join(order, "\n")))
	if err := errors.Join(a.end(), files.Flush()); err != nil {
		t.Fatal(err)
	}
	root := rootDisk(t, dir, map[string]string{"carboy": carboy, "vm.test": self, "project.test": project})
	xfs, ext4 := filepath.Join(dir, "xfs"), filepath.Join(dir, "ext4")
	blank(t, xfs, 320<<20)
	run(t, "mkfs.xfs", "-q", xfs)
	blank(t, ext4, 128<<20)
	run(t, "mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", ext4)
	boot(t, k.image, initrd.Name(), root, xfs, ext4)
}

// boot runs the machine, and wants all tests inside to pass.
func boot(t *testing.T, image, initrd string, disks ...string) {
	t.Helper()
	args := []string{
		"-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024", "-smp", "2", "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", image, "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1 reboot=t mitigations=off",
	}
	if os.Getenv(gvisorEnv) != "" {
		args[len(args)-1] += " -- " + gvisorArg
	}
	for _, d := range disks {
		args = append(args, "-drive", "if=virtio,format=raw,cache=unsafe,file="+d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()
	from := time.Now()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	out, err := qemu.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	qemu.Stderr = t.Output()
	if err := qemu.Start(); err != nil {
		t.Fatal("the tests need qemu-system-x86: ", err)
	}
	passed, ended := follow(t, from, out)
	err = qemu.Wait()
	if !ended || err != nil {
		t.Errorf("the machine ended with %v after %v, and its tests did not end well", err, time.Since(from).Round(time.Millisecond))
	}
	for _, name := range inside {
		if !slices.Contains(passed, name) {
			t.Errorf("%s did not pass inside", name)
		}
	}
}

var passLine = regexp.MustCompile(`^--- PASS: (\w+) `)

// follow logs what comes over the serial line. ended says that it came to the end
// with every program content.
func follow(t *testing.T, from time.Time, out io.Reader) (passed []string, ended bool) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		t.Logf("%6.2f %s", time.Since(from).Seconds(), line)
		if m := passLine.FindStringSubmatch(line); m != nil {
			passed = append(passed, m[1])
		}
		ended = ended || line == allWell
	}
	return passed, ended
}

// build makes a test binary that needs nothing of the machine that it runs on.
func build(t *testing.T, out, pkg string) {
	t.Helper()
	cmd := exec.Command("go", "test", "-c", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, text)
	}
}

// rootDisk makes the machine's file system: busybox, and programs.
func rootDisk(t *testing.T, dir string, programs map[string]string) string {
	t.Helper()
	tree, disk := filepath.Join(dir, "tree"), filepath.Join(dir, "disk")
	for _, d := range []string{"bin", "dev", "proc", "sys", "run", "tmp", "etc", "root", "usr/bin", "lib", "lib64", "var/tmp", "mnt/xfs", "mnt/ext4", "home", "opt", "sbin"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal("the tests need busybox-static: ", err)
	}
	programs["bin/busybox"] = busybox
	for to, from := range programs {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(tree, to), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "ls", "cat", "dd", "rm", "mkdir", "head", "mv", "ln", "id", "df", "touch", "true", "sleep", "du", "mount"} {
		if err := os.Symlink("busybox", filepath.Join(tree, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	passwd := "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(tree, "etc", "passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	blank(t, disk, 1<<30)
	run(t, "mkfs.ext4", "-q", "-F", "-d", tree, "-E", "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0", disk)
	return disk
}

func blank(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		cmd.Path, cmd.Err = path, nil
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, text)
	}
}

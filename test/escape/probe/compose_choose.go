package main

import (
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// chooser makes up the next steps, which belong together.
type chooser struct {
	weight int
	make   func(*sequence) []facts.Step
}

// looking are chosen from until something new is seen, altering from then on.
var looking = []chooser{
	{10, (*sequence).chooseOverlay},
	{6, (*sequence).chooseBind},
	{3, (*sequence).chooseFileSystem},
	{2, (*sequence).chooseUnmount},
	{2, (*sequence).chooseRemount},
	{2, (*sequence).chooseRoot},
	{2, (*sequence).chooseUnshare},
	{1, (*sequence).chooseNamespace},
	{2, (*sequence).chooseHandle},
	{2, (*sequence).chooseHeld},
	{2, (*sequence).chooseTree},
	{3, (*sequence).chooseFile},
	{2, (*sequence).chooseName},
	{1, (*sequence).chooseSocket},
}

var altering = []chooser{
	{6, (*sequence).chooseFile},
	{8, (*sequence).chooseName},
	{3, (*sequence).chooseSocket},
	{2, (*sequence).chooseOverlay},
	{1, (*sequence).chooseBind},
	{1, (*sequence).chooseUnmount},
	{1, (*sequence).chooseHeld},
}

func (s *sequence) choose() []facts.Step {
	list := looking
	if len(s.news) > 0 && s.rand.IntN(5) != 0 {
		list = altering
	}
	total := 0
	for _, c := range list {
		total += c.weight
	}
	n := s.rand.IntN(total)
	for _, c := range list {
		if n -= c.weight; n < 0 {
			return c.make(s)
		}
	}
	return nil
}

// target is where something is to be mounted.
func (s *sequence) target() string {
	if s.rand.IntN(4) == 0 {
		return s.somewhere()
	}
	return pick(s.rand, s.scratches())
}

func (s *sequence) chooseOverlay() (list []facts.Step) {
	lower := s.somewhere()
	for range s.rand.IntN(3) {
		lower += ":" + s.somewhere()
	}
	data := "lowerdir=" + lower
	if s.rand.IntN(4) != 0 {
		upper := s.somewhere()
		work := path.Join(pick(s.rand, []string{upper, upper, path.Dir(upper), s.scratch}), s.fresh())
		list = append(list, facts.Step{Op: "mkdir", B: work, N: 0o755})
		data = "upperdir=" + upper + ",workdir=" + work + "," + data
	}
	data += pick(s.rand, []string{"", "", "", ",xino=on", ",redirect_dir=on", ",metacopy=on", ",userxattr", ",index=off"})
	return append(list, facts.Step{Op: "mount", A: "overlay", B: s.target(), Kind: "overlay", Data: data})
}

func (s *sequence) chooseBind() []facts.Step {
	flags := pick(s.rand, []uint64{unix.MS_BIND, unix.MS_BIND, unix.MS_BIND | unix.MS_REC, unix.MS_MOVE})
	from := s.somewhere()
	if s.rand.IntN(4) == 0 {
		from = s.entry()
	}
	return []facts.Step{{Op: "mount", A: from, B: s.target(), N: flags}}
}

func (s *sequence) chooseFileSystem() []facts.Step {
	kind := pick(s.rand, []string{
		"tmpfs", "tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2", "devtmpfs", "9p", "fuse", "ext4", "squashfs", "debugfs", "tracefs", "bpf", "binfmt_misc", "ramfs", "dev", "gofer", "host", "erofs",
	})
	data := map[string]string{
		"9p": "trans=fd,rfdno=" + s.number() + ",wfdno=" + s.number() + ",aname=/", "fuse": "fd=" + s.number() + ",rootmode=40000,user_id=0,group_id=0",
	}[kind]
	return []facts.Step{{Op: "mount", A: pick(s.rand, []string{"none", kind, s.entry()}), B: s.target(), Kind: kind, Data: data, N: pick(s.rand, []uint64{0, 0, unix.MS_NOSUID, unix.MS_RDONLY})}}
}

func (s *sequence) number() string { return strconv.Itoa(s.rand.IntN(24)) }

func (s *sequence) chooseUnmount() []facts.Step {
	at := s.somewhere()
	if s.rand.IntN(2) == 0 {
		at = pick(s.rand, s.places.points)
	}
	return []facts.Step{{Op: "umount", B: at, N: pick(s.rand, []uint64{0, unix.MNT_DETACH, unix.MNT_DETACH, unix.MNT_FORCE, unix.UMOUNT_NOFOLLOW})}}
}

func (s *sequence) chooseRemount() []facts.Step {
	at := s.somewhere()
	if s.rand.IntN(2) == 0 {
		at = pick(s.rand, s.places.points)
	}
	flags := pick(s.rand, []uint64{
		unix.MS_REMOUNT, unix.MS_REMOUNT | unix.MS_BIND, unix.MS_PRIVATE | unix.MS_REC, unix.MS_SHARED | unix.MS_REC, unix.MS_SLAVE, unix.MS_UNBINDABLE,
	})
	return []facts.Step{{Op: "mount", A: "none", B: at, N: flags}}
}

// chooseRoot changes the root, after what it takes to be one.
func (s *sequence) chooseRoot() []facts.Step {
	at := s.somewhere()
	switch s.rand.IntN(4) {
	case 0:
		return []facts.Step{{Op: "hold", A: pick(s.rand, []string{"/", at})}, {Op: "chroot", B: at}, {Op: "fchdir"}, {Op: "up"}, {Op: "chroot", B: "."}}
	case 1:
		at = pick(s.rand, s.scratches())
		return []facts.Step{
			{Op: "mount", A: s.somewhere(), B: at, N: unix.MS_BIND | unix.MS_REC},
			{Op: "pivot", A: at, B: path.Join(at, pick(s.rand, []string{".", "tmp", "mnt", s.fresh()}))},
		}
	case 2:
		return []facts.Step{{Op: "pivot", A: ".", B: "."}, {Op: "umount", B: ".", N: unix.MNT_DETACH}}
	}
	return []facts.Step{{Op: "chroot", B: at}}
}

func (s *sequence) chooseUnshare() []facts.Step {
	var flags uint64
	for _, f := range namespaceFlags {
		if s.rand.IntN(3) == 0 {
			flags |= uint64(f.flag)
		}
	}
	return []facts.Step{{Op: "unshare", N: flags | pick(s.rand, []uint64{0, unix.CLONE_FS, unix.CLONE_FILES, unix.CLONE_SYSVSEM})}}
}

func (s *sequence) chooseNamespace() []facts.Step {
	ns := pick(s.rand, namespaceFlags)
	pid := pick(s.rand, []string{"1", "2", "self", s.number(), s.number()})
	return []facts.Step{{Op: "setns", A: "/proc/" + pid + "/ns/" + ns.name, N: pick(s.rand, []uint64{0, uint64(ns.flag)})}}
}

// chooseHandle opens a directory, or its neighbour, by what stands for it.
func (s *sequence) chooseHandle() []facts.Step {
	return []facts.Step{{Op: "handle", A: s.somewhere(), B: pick(s.rand, s.places.points), N: uint64(s.rand.IntN(9))}}
}

// chooseHeld holds a directory, does something, and goes on from there.
func (s *sequence) chooseHeld() []facts.Step {
	list := []facts.Step{{Op: "hold", A: s.somewhere()}}
	if s.rand.IntN(2) == 0 {
		list = append(list, pick(s.rand, []func() []facts.Step{s.chooseBind, s.chooseUnmount, s.chooseOverlay})()...)
	}
	return append(list, facts.Step{Op: "fchdir"}, facts.Step{Op: pick(s.rand, []string{"up", "here"})})
}

// chooseTree takes the newer calls for mounts.
func (s *sequence) chooseTree() []facts.Step {
	if s.rand.IntN(2) == 0 {
		return []facts.Step{{Op: "fsmount", B: s.target(), Kind: pick(s.rand, []string{"tmpfs", "proc", "overlay", "sysfs"}), A: s.somewhere(), Data: s.somewhere()}}
	}
	return []facts.Step{{Op: "tree", A: s.somewhere(), B: s.target(), N: pick(s.rand, []uint64{unix.OPEN_TREE_CLONE, unix.OPEN_TREE_CLONE | unix.AT_RECURSIVE, 0})}}
}

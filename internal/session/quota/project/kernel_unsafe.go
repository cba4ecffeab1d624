package project

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsAttributes is struct fsxattr.
type fsAttributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	putAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
)

// attributes are those of an open file or directory.
func attributes(fd int) (fsAttributes, error) {
	var a fsAttributes
	return a, ioctl(fd, getAttributes, &a)
}

func setAttributes(fd int, a fsAttributes) error { return ioctl(fd, putAttributes, &a) }

func ioctl(fd int, request uintptr, a *fsAttributes) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(a)))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// diskQuota is struct fs_disk_quota.
type diskQuota struct {
	version, kind                                        int8
	fields                                               uint16
	id                                                   uint32
	blocksHard, blocksSoft, inodesHard, inodesSoft       uint64
	blocks, inodes                                       uint64
	inodeTimer, blockTimer                               int32
	inodeWarns, blockWarns                               uint16
	inodeTimerHigh, blockTimerHigh, realtimeTimerHigh, _ int8
	realtimeHard, realtimeSoft, realtime                 uint64
	realtimeTimer                                        int32
	realtimeWarns                                        uint16
	_                                                    int16
	_                                                    [8]byte
}

// statV is struct fs_quota_statv.
type statV struct {
	version int8
	_       uint8
	flags   uint16
	_       uint32
	_       [3]struct{ inode, blocks, extents uint64 }
	_       [3]int32
	_       [4]uint16
	_       uint32
	_       [7]uint64
}

// Both as they are in linux/dqblk_xfs.h.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(diskQuota{})-112]
	_ = [1]struct{}{}[unsafe.Sizeof(statV{})-160]
	_ = [1]struct{}{}[unsafe.Sizeof(fsAttributes{})-28]
)

const (
	projectQuota = 2 // PRJQUOTA

	getQuota  = 'X'<<8 + 3 // Q_XGETQUOTA
	setLimits = 'X'<<8 + 4 // Q_XSETQLIM
	getStatV  = 'X'<<8 + 8 // Q_XGETQSTATV

	accounted, enforced = 1 << 4, 1 << 5 // FS_QUOTA_PDQ_ACCT, FS_QUOTA_PDQ_ENFD

	inodesSoftField, inodesHardField     = 1 << 0, 1 << 1
	blocksSoftField, blocksHardField     = 1 << 2, 1 << 3
	realtimeSoftField, realtimeHardField = 1 << 4, 1 << 5
)

// bounds are a project's hard limits, in blocks of 512 bytes; 0: none.
type bounds struct{ blocks, inodes, realtime uint64 }

// quota is what the kernel knows of a project.
type quota struct {
	hard  bounds
	usage Usage
}

// system is a file system that enforces quotas of projects.
type system struct {
	dir    *os.File // in it
	device string   // "": dir is asked
	xfs    bool
}

// system returns that of an open directory. An *UnfitError is for one that
// enforces none.
func (c *Control) system(dir *os.File) (*system, error) {
	s := &system{dir: dir}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat the file system of a workspace: %w", err)
	}
	s.xfs = st.Type == unix.XFS_SUPER_MAGIC
	v := statV{version: 1}
	err := unix.ENOSYS
	if !c.byDevice {
		err = s.call(getStatV, 0, unsafe.Pointer(&v))
	}
	if errors.Is(err, unix.ENOSYS) {
		// Either the kernel has no such call, or the file system no quotas.
		if s.device = deviceOf(dir); s.device != "" {
			v = statV{version: 1}
			err = s.call(getStatV, 0, unsafe.Pointer(&v))
		}
	}
	switch {
	case err != 0:
		return nil, unable("its file system has no project quotas: %v", err)
	case v.flags&(accounted|enforced) != accounted|enforced:
		return nil, unable("its file system is mounted without project quotas")
	}
	return s, nil
}

// deviceOf returns the block device that a directory's file system is on; "":
// none is known.
func deviceOf(dir *os.File) string {
	var st, at unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	path := device(string(mounts), fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if path == "" || unix.Stat(path, &at) != nil || at.Mode&unix.S_IFMT != unix.S_IFBLK || at.Rdev != st.Dev {
		return ""
	}
	return path
}

// call is quotactl_fd(2), or quotactl(2) of the device.
func (s *system) call(command uintptr, id uint32, arg unsafe.Pointer) unix.Errno {
	command = command<<8 | projectQuota
	if s.device == "" {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, s.dir.Fd(), command, uintptr(id), uintptr(arg), 0, 0)
		return errno
	}
	path, err := unix.BytePtrFromString(s.device)
	if err != nil {
		return unix.EINVAL
	}
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, command, uintptr(unsafe.Pointer(path)), uintptr(id), uintptr(arg), 0, 0)
	runtime.KeepAlive(path)
	return errno
}

// get returns what is known of a project; of one that nobody uses, nothing.
func (s *system) get(id uint32) (quota, error) {
	var q diskQuota
	switch err := s.call(getQuota, id, unsafe.Pointer(&q)); err {
	case 0:
	case unix.ENOENT:
		return quota{}, nil
	case unix.EPERM, unix.EACCES:
		return quota{}, unable("quotas are set by the machine's root alone: %v", err)
	default:
		return quota{}, fmt.Errorf("read the quota of project %d: %w", id, err)
	}
	return quota{
		hard:  bounds{q.blocksHard, q.inodesHard, q.realtimeHard},
		usage: Usage{Bytes: int64(q.blocks+q.realtime) * 512, Inodes: int64(q.inodes)},
	}, nil
}

func (s *system) used(id uint32) (bool, error) {
	q, err := s.get(id)
	return q != (quota{}), err
}

// set gives a project its limits, and none that are only warned of.
func (s *system) set(id uint32, b bounds) error {
	q := diskQuota{
		version: 1, kind: projectQuota, id: id, blocksHard: b.blocks, inodesHard: b.inodes, realtimeHard: b.realtime,
		fields: inodesSoftField | inodesHardField | blocksSoftField | blocksHardField,
	}
	if s.xfs {
		q.fields |= realtimeSoftField | realtimeHardField
	}
	switch err := s.call(setLimits, id, unsafe.Pointer(&q)); err {
	case 0:
		return nil
	case unix.EPERM, unix.EACCES:
		return unable("quotas are set by the machine's root alone: %v", err)
	default:
		return fmt.Errorf("set the quota of project %d: %w", id, err)
	}
}

package boot

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// keepAttributes has extended attributes of files on a read-only mount stay as they are, as on Linux. gVisor asks
// the mount before it changes anything else of a file. What is asked is what is changed: the file is looked up once.
func keepAttributes() {
	for name, follow := range map[string]bool{"setxattr": true, "lsetxattr": false} {
		wrapCalls(attributesByPath(follow, setAttribute), name)
	}
	for name, follow := range map[string]bool{"removexattr": true, "lremovexattr": false} {
		wrapCalls(attributesByPath(follow, removeAttribute), name)
	}
	wrapCalls(attributesByDescriptor(setAttribute), "fsetxattr")
	wrapCalls(attributesByDescriptor(removeAttribute), "fremovexattr")
}

// attributeChange is what is asked for of one file, read from a call's arguments.
type attributeChange func(t *kernel.Task, args arch.SyscallArguments, at vfs.VirtualDentry) error

func attributesByPath(follow bool, change attributeChange) func(kernel.SyscallFn) kernel.SyscallFn {
	return func(kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			path, err := t.CopyInString(args[0].Pointer(), linux.PATH_MAX)
			if err != nil {
				return 0, nil, err
			}
			if path == "" {
				return 0, nil, linuxerr.ENOENT
			}
			root, start := t.FSContext().RootDirectory(), t.FSContext().WorkingDirectory()
			defer root.DecRef(t)
			defer start.DecRef(t)
			from := vfs.PathOperation{Root: root, Start: start, Path: fspath.Parse(path), FollowFinalSymlink: follow}
			if from.Path.Absolute {
				from.Start = root
			}
			at, err := t.Kernel().VFS().GetDentryAt(t, t.Credentials(), &from, &vfs.GetDentryOptions{})
			if err != nil {
				return 0, nil, err
			}
			defer at.DecRef(t)
			return 0, nil, whereWritable(t, args, at, change)
		}
	}
}

func attributesByDescriptor(change attributeChange) func(kernel.SyscallFn) kernel.SyscallFn {
	return func(kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			file := t.GetFile(args[0].Int())
			if file == nil {
				return 0, nil, linuxerr.EBADF
			}
			defer file.DecRef(t)
			if file.StatusFlags()&linux.O_PATH != 0 {
				return 0, nil, linuxerr.EBADF
			}
			return 0, nil, whereWritable(t, args, file.VirtualDentry(), change)
		}
	}
}

// whereWritable makes a change unless the file's mount is read-only. Meanwhile it can't become that.
func whereWritable(t *kernel.Task, args arch.SyscallArguments, at vfs.VirtualDentry, change attributeChange) error {
	if err := at.Mount().CheckBeginWrite(); err != nil {
		return err
	}
	defer at.Mount().EndWrite()
	return change(t, args, at)
}

func setAttribute(t *kernel.Task, args arch.SyscallArguments, at vfs.VirtualDentry) error {
	size, flags := args[3].SizeT(), args[4].Uint()
	if flags&^(linux.XATTR_CREATE|linux.XATTR_REPLACE) != 0 {
		return linuxerr.EINVAL
	}
	name, err := attributeName(t, args[1].Pointer())
	if err != nil {
		return err
	}
	if size > linux.XATTR_SIZE_MAX {
		return linuxerr.E2BIG
	}
	value := make([]byte, size)
	if _, err := t.CopyInBytes(args[2].Pointer(), value); err != nil {
		return err
	}
	opts := vfs.SetXattrOptions{Name: name, Value: string(value), Flags: flags}
	return t.Kernel().VFS().SetXattrAt(t, t.Credentials(), &vfs.PathOperation{Root: at, Start: at}, &opts)
}

func removeAttribute(t *kernel.Task, args arch.SyscallArguments, at vfs.VirtualDentry) error {
	name, err := attributeName(t, args[1].Pointer())
	if err != nil {
		return err
	}
	return t.Kernel().VFS().RemoveXattrAt(t, t.Credentials(), &vfs.PathOperation{Root: at, Start: at}, name)
}

func attributeName(t *kernel.Task, at hostarch.Addr) (string, error) {
	name, err := t.CopyInString(at, linux.XATTR_NAME_MAX+1)
	if linuxerr.Equals(linuxerr.ENAMETOOLONG, err) || err == nil && name == "" {
		return "", linuxerr.ERANGE
	}
	return name, err
}

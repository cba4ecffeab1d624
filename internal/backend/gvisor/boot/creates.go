package boot

import (
	"path"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// createRounds bounds how often an open that makes a file is tried anew: 40 ms. Where the host has removed
// the working directory, which gVisor can't tell, all are taken.
const createRounds = 2000

// createAmidOthers has an open that makes a file where there is none succeed while others make
// and remove that file. Of a file on the host gVisor looks the name up, asks the gofer to make
// it, and looks it up once more if it is there by then. It says ENOENT where it has gone again, and
// ELOOP where it is a symbolic link now. Linux holds the directory meanwhile. There is no openat2
// for commands.
func createAmidOthers() {
	wrapCalls(tryAgain(func(args arch.SyscallArguments) opening {
		return opening{linux.AT_FDCWD, args[0].Pointer(), args[1].Uint()}
	}), "open")
	wrapCalls(tryAgain(func(args arch.SyscallArguments) opening {
		return opening{linux.AT_FDCWD, args[0].Pointer(), linux.O_CREAT}
	}), "creat")
	wrapCalls(tryAgain(func(args arch.SyscallArguments) opening {
		return opening{args[0].Int(), args[1].Pointer(), args[2].Uint()}
	}), "openat")
}

// opening is what an open was asked for.
type opening struct {
	dirfd int32
	path  hostarch.Addr
	flags uint32 // O_*
}

// tryAgain wraps an open whose arguments say what asked reads from them.
func tryAgain(asked func(arch.SyscallArguments) opening) func(kernel.SyscallFn) kernel.SyscallFn {
	return func(fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			n, control, err := fn(t, sysno, args)
			if err == nil {
				return n, control, nil
			}
			o := asked(args)
			err = o.rounds(err, func() error { return o.settled(t) }, func() error {
				n, control, err = fn(t, sysno, args)
				return err
			})
			return n, control, err
		}
	}
}

// rounds opens again while err may come of what others did, and settled gives no reason, which is the answer then.
func (o opening) rounds(err error, settled, open func() error) error {
	for round := 0; round < createRounds && o.missed(err); round++ {
		if why := settled(); why != nil {
			return why
		}
		err = open()
	}
	return err
}

// missed reports whether the open may have failed by what others did meanwhile.
func (o opening) missed(err error) bool {
	if o.flags&(linux.O_CREAT|linux.O_EXCL) != linux.O_CREAT {
		return false
	}
	return linuxerr.Equals(linuxerr.ENOENT, err) || linuxerr.Equals(linuxerr.ELOOP, err) && o.flags&linux.O_NOFOLLOW == 0
}

// settled says why not to try again. Where a task is killed, or gets a signal while others have the file there, the
// whole call is made again after that, as far as the task lives: it never fails by EINTR.
func (o opening) settled(t *kernel.Task) error {
	name, err := t.CopyInString(o.path, linux.PATH_MAX)
	if err != nil {
		return err
	}
	root, start := t.FSContext().RootDirectory(), t.FSContext().WorkingDirectory()
	defer root.DecRef(t)
	if file := t.GetFile(o.dirfd); file != nil {
		start.DecRef(t)
		start = file.VirtualDentry()
		start.IncRef()
		file.DecRef(t)
	}
	defer start.DecRef(t)
	there, err := o.look(t, root, start, name)
	if err == nil && (t.Killed() || there && t.Interrupted()) {
		return linuxerr.ERESTARTNOINTR
	}
	return err
}

// look reports whether the file of this name is there, or says why its directory can't be reached. Of a link it is
// the file to which that leads.
func (o opening) look(t *kernel.Task, root, start vfs.VirtualDentry, name string) (there bool, err error) {
	fs, creds := t.Kernel().VFS(), t.Credentials()
	for range linux.MaxSymlinkTraversals {
		dir, base := path.Split(name)
		from := vfs.PathOperation{Root: root, Start: start, Path: fspath.Parse(dir), FollowFinalSymlink: true}
		if from.Path.Absolute {
			from.Start = root
		}
		in, err := fs.GetDentryAt(t, creds, &from, &vfs.GetDentryOptions{CheckSearchable: true})
		if err != nil {
			return false, err
		}
		target, err := fs.ReadlinkAt(t, creds, &vfs.PathOperation{Root: root, Start: in, Path: fspath.Parse(base)})
		in.DecRef(t)
		if err != nil || o.flags&linux.O_NOFOLLOW != 0 {
			return linuxerr.Equals(linuxerr.EINVAL, err), nil // EINVAL: it is no link
		}
		if name = target; !path.IsAbs(target) {
			name = dir + target
		}
	}
	return false, linuxerr.ELOOP
}

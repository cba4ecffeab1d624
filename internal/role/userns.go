package role

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// roleUserNS never runs: only its user namespace is wanted.
const roleUserNS = "carboy-box-userns"

// UserNamespace returns a user namespace with these maps.
func UserNamespace(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	p, end, err := Stopped(roleUserNS, nil, syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: uids, GidMappings: gids, GidMappingsEnableSetgroups: true,
	})
	if err != nil {
		return nil, err
	}
	defer end()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
}

package escape

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// sentrySignals has processes of other users signal the box's sentry: of one
// that services of the host run as, and of another box's sentry.
func sentrySignals(w *world) (found []string) {
	if os.Geteuid() != 0 {
		return nil // all that the caller starts is the caller's, sentries too
	}
	other := w.another()
	defer w.run(nil, "rm", "-f", other)
	ours, err := w.subjects(w.boxDir(w.box))
	theirs, oerr := w.subjects(w.boxDir(other))
	if err != nil || oerr != nil {
		w.t.Fatal(err, oerr)
	}
	pid := ours[0].pid
	w.whole(signal(effective(pid), pid) == nil, "not even its own user signals the sentry")
	for who, uid := range map[string]string{"a service": "65534", "another box's sentry": effective(theirs[0].pid)} {
		if signal(uid, pid) == nil {
			found = append(found, fmt.Sprintf("%s, user %s, signals the sentry", who, uid))
		}
	}
	return found
}

// signal tries whether a process of a user may send pid a signal.
func signal(uid string, pid int) error {
	id, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", `kill -s 0 "$1"`, "sh", strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	return cmd.Run()
}

package jail

import "golang.org/x/sys/unix"

// KillInitForTest ends the present init from outside.
func (j *Jail) KillInitForTest() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cell.init.Signal(unix.SIGKILL)
}

// ParseNSpidForTest is parseNSpid.
var ParseNSpidForTest = parseNSpid

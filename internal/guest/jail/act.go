package jail

import "errors"

// Act runs f as a command of u's: on a thread with a command's namespaces,
// capabilities and filter of system calls. It is for finding out what commands
// may do. Other commands are not started meanwhile, so f must not wait for
// anything. Files that f opens are the agent's. Root is an error.
func (j *Jail) Act(u User, f func()) error {
	if u.UID == 0 {
		return errors.New("act as a command: not as root")
	}
	_, w, err := j.worker(u.UID)
	if err != nil {
		return err
	}
	var failed error
	if err := w.do(func() { failed = as(u, f) }); err != nil {
		return err
	}
	return failed
}

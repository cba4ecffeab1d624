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

// InitPIDForTest is the present init's, here.
func (j *Jail) InitPIDForTest() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cell.init.PID
}

// ParseLayoutForTest is parseLayout.
func ParseLayoutForTest(maps []byte, pc uintptr) (code, codeEnd, top uintptr, foreign bool, err error) {
	l, err := parseLayout(maps, pc)
	return l.code, l.codeEnd, l.top, l.foreign, err
}

// LandlockForTest enters a domain, as commands' threads do. It reports the
// version in use, 0 for none.
func LandlockForTest(hidden []string, root bool) (int, error) {
	abi, err := landlockABI()
	if err != nil || abi < abiRefer {
		return 0, err
	}
	return abi, enterDomain(abi, hidden, root)
}

// RemountsForTest parses what a process sees mounted, and lists what a jail
// does about it: what it binds, and what it makes read-only.
func RemountsForTest(mountinfo []byte, cfg Config) (binds, remounts []string, err error) {
	mounts, err := parseMounts(mountinfo)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range cfg.readOnlySteps(mounts) {
		if s.source != "" {
			binds = append(binds, s.target)
			continue
		}
		remounts = append(remounts, s.target)
	}
	return binds, remounts, nil
}

// AllReadOnlyForTest is allReadOnly of what a process sees mounted.
func AllReadOnlyForTest(mountinfo []byte, cfg Config) error {
	mounts, err := parseMounts(mountinfo)
	if err != nil {
		return err
	}
	return cfg.allReadOnly(mounts)
}

// InMountsForTest runs f where MountNS leads, as services do.
func (j *Jail) InMountsForTest(f func() error) error { return inMounts(j.mountNS, f) }

package guest

import (
	"github.com/carboy-sandbox/carboy/internal/guest/sudo"
)

// installSudo has commands that search a PATH find a program named sudo below
// root: one that works where the sandbox has it, else one that says what to do.
func (a *agent) installSudo(root, searched string) error {
	advice := "not in this sandbox: have the whole command run as root, as carboy exec --user root does"
	if !a.cfg.AllowRoot {
		advice = "no command of this sandbox can be root: that takes the wall gvisor, and no directory of another user or that is written to"
	}
	return sudo.Install(root, searched, advice, a.sudoAllowed())
}

// sudoAllowed reports whether commands become root by sudo.
func (a *agent) sudoAllowed() bool { return a.cfg.Sudo && a.cfg.AllowRoot }

// serveSudo answers the calls of sudo, where it is allowed, until stop.
func (a *agent) serveSudo(users *accounts) (stop func(), err error) {
	if !a.sudoAllowed() {
		return func() {}, nil
	}
	s, err := sudo.Listen(sudo.Options{
		Engine: a.engine, Lookup: a.allowed(users), Log: a.log,
		User: func() string { return a.settings.defaults().User },
	})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := s.Close(); err != nil {
			a.log.Warn("stop answering sudo", "err", err)
		}
	}, nil
}

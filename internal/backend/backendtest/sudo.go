package backendtest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// testSudo: commands become root from inside where that was asked for and root
// is allowed; elsewhere a program of that name says what to do instead.
func testSudo(t *testing.T, s *suite) {
	w := s.open(t)
	const ask = `sudo -n id -u 2>&1; echo $?`
	const elsewhere = "sudo: not in this sandbox: have the whole command run as root, as carboy exec --user root does\n1\n"
	const nowhere = "sudo: no command of this sandbox can be root: that takes the wall gvisor, and no directory of another user or that is written to\n1\n"
	given := func(sb *sandbox.Sandbox) { sb.Spec.Sudo = true }
	without, with := w.begin(t), w.begin(t, given)
	if !s.Root {
		without.says(t, ask, nowhere)
		with.says(t, ask, nowhere)
		return
	}
	without.says(t, ask, elsewhere)
	for range 2 { // and once more after a stop
		with.says(t, ask, "0\n0\n")
		status, body := with.request(t, http.MethodPost, "user", "/etc/new", strings.NewReader("x"))
		if status != http.StatusOK {
			t.Errorf("write where root alone may: %d %s", status, body)
		}
		with.says(t, "stat -c %U /etc/new && sudo rm /etc/new && sudo -u nobody sudo id -u 2>&1 | cut -c-30", "user\nsudo: uid 65534 is not the san\n")
		w.mustStop(t, with.id)
		with = w.restart(t, with.sb)
	}
	w.mustStop(t, with.id)
	snapshot := w.save(t, with.sb)
	w.from(t, snapshot).says(t, ask, elsewhere)
}

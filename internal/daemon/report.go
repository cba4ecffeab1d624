package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// Report is how a daemon that Ensure started tells its starter how it went.
// The zero value tells nobody.
type Report struct {
	f     *os.File
	notes []string
}

// Reporter returns the Report that getenv names, and hides it from processes
// that this one starts.
func Reporter(getenv func(string) string) *Report {
	fd, err := strconv.Atoi(getenv(reach.ReadyVar))
	if err != nil || fd != reach.ReadyFD {
		return &Report{}
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return &Report{}
	}
	unix.CloseOnExec(fd)
	_ = os.Unsetenv(reach.ReadyVar)
	return &Report{f: os.NewFile(uintptr(fd), "ready")}
}

// Note adds a line that the starter's user is told once the daemon answers.
func (r *Report) Note(line string) { r.notes = append(r.notes, line) }

// Ready says that the daemon answers. It has the form of Deps.Ready.
func (r *Report) Ready([]net.Addr) { r.say(api.Error{Message: strings.Join(r.notes, "\n")}) }

// Failed says why it does not. After Ready it says nothing.
func (r *Report) Failed(err error) {
	told := wire.Describe(err)
	if _, ok := errors.AsType[*sandbox.Error](err); !ok { // it is read by the daemon's own user, and there may be no log
		told = api.Error{Code: string(sandbox.Internal), Message: fmt.Sprintf("the daemon can't start: %v", err)}
	}
	r.say(told)
}

func (r *Report) say(e api.Error) {
	if r.f == nil {
		return
	}
	if b, err := json.Marshal(e); err == nil {
		_, _ = r.f.Write(b) // a starter that has gone needs no answer
	}
	_ = r.f.Close()
	r.f = nil
}

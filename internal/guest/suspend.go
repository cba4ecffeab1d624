package guest

import (
	"io"
	"net/http"
	"os"
	"strings"
)

// suspend has the agent give up all connections: a kernel that is about to be
// written to disk must hold nothing of the host's. The one over which that was
// asked is answered, and ends when it is the last. Commands go on; whoever
// reads their output has to come again.
//
// A socket that a program has bound to a path is the host's, too, and nobody
// but the program can give it up: where there is one, it is named.
func (a *agent) suspend(w http.ResponseWriter, _ *http.Request) {
	if held := boundSocket(); held != "" {
		http.Error(w, held, http.StatusConflict)
		return
	}
	if err := ownProgram(); err != nil {
		a.log.Error("suspend", "err", err)
		http.Error(w, "the agent's program can't be kept", http.StatusInternalServerError)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "suspend: over HTTP/1 alone", http.StatusHTTPVersionNotSupported)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	select {
	case a.suspended <- conn:
	default: // it is about to
		_ = conn.Close()
	}
}

// unixTable lists unix sockets: their path, where they have one, comes last.
const unixTable = "/proc/net/unix"

// connected is the state of a socket in that table whose path is its peer's.
const connected = "03"

// boundSocket names a path that somebody's socket is bound to, or is "". What is
// below /dev is in no file system of the host's.
func boundSocket() string {
	table, err := os.ReadFile(unixTable)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), " /", 2)
		state := strings.Fields(f[0])
		if len(f) < 2 || len(state) < 6 || state[5] == connected {
			continue
		}
		if path := "/" + f[1]; !strings.HasPrefix(path, "/dev/") {
			return path
		}
	}
	return ""
}

package escape

import (
	"fmt"
	"strings"
)

// agentProgram has the agent start commands whose interpreter is what a command's
// process executed last, which before its own program is the agent's. In their
// place would run the agent.
func agentProgram(w *world) (found []string) {
	w.guest(`mkdir -p /tmp/agent && cd /tmp/agent && for p in self/exe thread-self/exe 1/exe; do
		printf '#!/proc/%%s\n' $p >$(echo $p | tr / -); done; printf '#!/bin/sh\necho by its name\n' >plain; chmod 755 *`)
	w.whole(w.run(nil, "exec", w.box, "--", "/tmp/agent/plain").stdout == "by its name\n", "a script with an ordinary interpreter does not run")
	for name := range strings.FieldsSeq(w.run(nil, "exec", w.box, "--", "ls", "/tmp/agent").stdout) {
		if name == "plain" {
			continue
		}
		if r := w.run(nil, "exec", w.box, "--", "/tmp/agent/"+name); r.code != 126 && r.code != 127 {
			found = append(found, fmt.Sprintf("%s ran: exit code %d, %.100q", name, r.code, r.stdout+r.stderr))
		}
	}
	return found
}

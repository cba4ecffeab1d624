package gitgate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
)

// takenOver is a git that does as a script says, and else what git does.
func takenOver(t *testing.T, script string) func(*gitgate.Config) {
	return func(c *gitgate.Config) {
		name := filepath.Join(t.TempDir(), "git")
		must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+script+"\nexec "+c.Git+" \"$@\"\n"), 0o755))
		c.Git = name
	}
}

// TestPacksByAnother: a git that was taken over where it would pack adds nothing to what
// goes upstream.
func TestPacksByAnother(t *testing.T) {
	agent := &repo{t: t, dir: t.TempDir()}
	agent.git("init", "-q")
	hidden, err := agent.tryIn("token "+secret+"\n", "hash-object", "-w", "--stdin")
	must(t, err)
	w := newWorld(t, gitgate.Policy{}, takenOver(t, `case " $* " in *" pack-objects "*)
	ids=`+hidden+`
	while read -r id; do ids="$ids
$id"; done
	exec git "$@" <<END
$ids
END
esac`))
	id := agent.commit("a", "a", "a")
	tree, blob := agent.git("rev-parse", "HEAD^{tree}"), agent.git("rev-parse", "HEAD:a")
	packed, err := agent.pack(strings.Join([]string{id, tree, blob, hidden, ""}, "\n"), "--stdout", "-q")
	must(t, err)
	head := pktline.AppendFlush(pktline.Append(nil, strings.Repeat("0", 40)+" "+id+" refs/heads/x\x00report-status"))
	_, says := request(t, w.url, "git-receive-pack", append(head, packed...))
	contains(t, says, "ok refs/heads/x")
	if w.ref("x") != id {
		t.Errorf("upstream has %q", w.ref("x"))
	}
	if _, err := w.up.try("cat-file", "-e", hidden); err == nil {
		t.Error("what nobody looked at is upstream")
	}
	w.up.git("fsck", "--strict")
}

// TestPathsStay: what git says of the gate's own files does not reach who pushes or fetches.
func TestPathsStay(t *testing.T) {
	dir := ""
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { dir = c.Dir }, takenOver(t, `case " $* " in *" index-pack "*"/push/"*) for a in "$@"; do case $a in *.idx)
	echo "fatal: unable to create '$a': No space left on device" >&2; exit 128;;
esac; done; esac`))
	w.agent.commit("a", "a", "a")
	says := w.agent.refuses()
	contains(t, says, "git refuses the objects: unable to create", "remote unpack failed: ")
	if strings.Contains(says, dir) {
		t.Errorf("it is told of %s: %s", dir, says)
	}
}

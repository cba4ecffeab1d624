package escape

import (
	"archive/tar"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// interpreters has the agent start scripts whose interpreter lies above what the
// agent has open, and one whose interpreter is named as always. Meanwhile it
// unpacks an archive, below a directory that anybody may search.
func interpreters(w *world) (found []string) {
	const most = 48
	w.guest(`mkdir -p /tmp/interpreters && cd /tmp/interpreters && n=3 && while [ $n -le %d ]; do
		printf '#!/proc/self/fd/%%d/../../../../../../usr/bin/echo by\n' $n >$n
		n=$((n+1)); done; printf '#!/usr/bin/echo by\n' >plain; chmod 755 *`, most)
	defer w.unpacking("/tmp/interpreters", "held")()
	ran := func(name string) bool {
		return strings.HasPrefix(w.run(nil, "exec", w.box, "--", "/tmp/interpreters/"+name).stdout, "by ")
	}
	w.whole(ran("plain"), "a script with an ordinary interpreter does not run")
	for n := 3; n <= most; n++ {
		if ran(fmt.Sprint(n)) {
			return []string{fmt.Sprintf("the kernel found an interpreter by descriptor %d of the agent's", n)}
		}
	}
	return nil
}

// unpacking copies an archive in that does not end before it is told to.
func (w *world) unpacking(dir, name string) (end func()) {
	w.t.Helper()
	cmd := exec.Command(w.bin, "cp", "-", w.box+":"+dir)
	cmd.Env, cmd.Dir, cmd.WaitDelay = w.env, w.dir, time.Second
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	const size = 1 << 20
	archive := tar.NewWriter(in)
	err = archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size})
	if err == nil {
		_, err = io.CopyN(archive, zeros{}, size/2)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if !patience.Until(10*time.Second, func() bool {
		return strings.Contains(w.run(nil, "exec", w.box, "--", "ls", "-A", dir).stdout, name)
	}) {
		w.t.Error("nothing of an archive arrives before its end")
	}
	return func() { _, _ = in.Close(), cmd.Wait() }
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

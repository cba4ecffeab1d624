package layer_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
)

// The test binary runs itself to be someone else.
const helperEnv = "CARBOY_LAYER_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		res, err := layer.Unpack(context.Background(), os.Stdin, dir, layer.Options{UserXattr: true, Below: []string{dir + ".below"}})
		if err != nil {
			fmt.Print("error ", err)
			os.Exit(0)
		}
		fmt.Print("ok ", strings.Join(res.Notes, "; "))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// unpackAs unpacks data into a directory that uid owns, in a process with
// other credentials, and returns what came of it.
func unpackAs(t *testing.T, uid int, attr *syscall.SysProcAttr, data []byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "layer") // not below what only root may enter
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, uid, uid))
	below := dir + ".below" // in which there is one file
	t.Cleanup(func() { os.RemoveAll(below) })
	must(t, os.Mkdir(below, 0o755))
	must(t, os.WriteFile(below+"/g", nil, 0o644))
	must(t, os.Chown(below, uid, uid))
	exe, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	bin := dir + ".test"
	must(t, os.WriteFile(bin, exe, 0o755))
	t.Cleanup(func() { os.Remove(bin) })
	cmd := exec.Command(bin)
	cmd.Env = []string{helperEnv + "=" + dir}
	cmd.Dir, cmd.Stdin, cmd.SysProcAttr = "/", bytes.NewReader(data), attr
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("helper: %v: %s", err, out)
	}
	for _, l := range list(t, dir) {
		out = append(out, "\n"+l...)
	}
	return string(out)
}

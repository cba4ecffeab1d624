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
		res, err := layer.Unpack(context.Background(), os.Stdin, dir, layer.Options{UserXattr: true})
		if err != nil {
			fmt.Print("error ", err)
			os.Exit(0)
		}
		fmt.Print("ok ", strings.Join(res.Notes, "; "))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// asNobody unpacks data without privileges and returns what came of it.
func asNobody(t *testing.T, data []byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "layer") // not below what only root may enter
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, 65534, 65534))
	exe, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	bin := dir + ".test"
	must(t, os.WriteFile(bin, exe, 0o755))
	t.Cleanup(func() { os.Remove(bin) })
	cmd := exec.Command(bin)
	cmd.Env = []string{helperEnv + "=" + dir}
	cmd.Dir, cmd.Stdin = "/", bytes.NewReader(data)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("helper: %v: %s", err, out)
	}
	return string(out)
}

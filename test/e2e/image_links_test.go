package e2e

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImageOfLinks has an image with a link to the host's in each place where
// something of the wall's is mounted, made or written: it either does not start,
// or what lies there on the host stays as it was, and is not seen inside.
func TestImageOfLinks(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("the host's"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	for place, target := range map[string]string{
		"none": "", "proc": outside, "dev": outside, "sys": outside, "tmp": outside, "run": outside, "etc": outside, "home": outside, "workspace": outside, "var": outside,
		"dev/null": secret, "dev/console": secret, "dev/pts": outside, "etc/passwd": secret, "etc/resolv.conf": secret, "etc/hosts": secret, "usr/local/etc": outside, "proc/sys": outside,
	} {
		name := "links:" + strings.ReplaceAll(place, "/", "-")
		entries := busybox(t, "bin", "sh")
		if target != "" {
			entries = append(entries, entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: place, Linkname: target}})
		}
		if r := h.run(bytes.NewReader(tarOf(t, entries...)), "image", "import", "--name", name, "-"); r.code != 0 {
			t.Errorf("%s: %s", place, r.stderr)
			continue
		}
		for _, wall := range wallNames {
			t.Run(wall+"/"+strings.ReplaceAll(place, "/", "-"), func(t *testing.T) {
				r := h.run(nil, "run", "--isolation", wall, "--image", name, "--", "/bin/busybox", "sh", "-c",
					"echo inside; echo x >/"+place+"/planted; echo x >/"+place+"; /bin/busybox cat /"+place+"/secret /"+place)
				t.Logf("exit code %d: %.300s", r.code, r.stdout+r.stderr)
				if target == "" && !strings.HasPrefix(r.stdout, "inside\n") {
					t.Errorf("without a link it does not run: %+v", r)
				}
				if strings.Contains(r.stdout, "the host's") || strings.Contains(r.stderr, "internal error") {
					t.Errorf("%+v", r)
				}
				names, err := os.ReadDir(outside)
				b, _ := os.ReadFile(secret)
				if err != nil || len(names) != 1 || string(b) != "the host's" {
					t.Fatalf("the host has %v, %q, %v", names, b, err)
				}
			})
		}
	}
}

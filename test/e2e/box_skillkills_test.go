package e2e

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/long"
)

const bigFiles, bigSize = 24, 256 << 10

// bigZip is an archive of several MiB with one package, "big".
func bigZip(t *testing.T) boxservice.Zip {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	put := func(name string, content []byte) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: "pack/big/" + name, Method: zip.Store})
		if err == nil {
			_, err = f.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("SKILL.md", []byte("---\nname: big\n---\nuse big\n"))
	noise := rand.NewChaCha8([32]byte{1})
	for n := range bigFiles {
		content := make([]byte, bigSize)
		_, _ = noise.Read(content)
		put(fmt.Sprintf("data/%d", n), content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return boxservice.Zip{Content: b.Bytes(), Filename: "pack.zip", SourcePaths: []string{"big"}}
}

// change is one of a store's, in the middle of which the runtime is killed.
type change struct {
	name string
	big  bool // the package is there before
	do   func(context.Context, *boxservice.Client)
}

func changes(pack boxservice.Zip, mount boxservice.Mount) []change {
	skilled := func(cmd string) boxservice.Spec {
		spec := boxservice.NewSpec("skilled", cmd)
		spec.Persistent, spec.ExtraMounts = true, []boxservice.Mount{mount}
		return spec
	}
	instructions := strings.Repeat("new ", 100_000)
	return []change{
		{"install", false, func(ctx context.Context, c *boxservice.Client) { _, _ = c.InstallZip(ctx, pack) }},
		{"write", true, func(ctx context.Context, c *boxservice.Client) {
			_, _ = c.WriteSkill(ctx, "big", "new/text", strings.Repeat("whole ", 100_000))
		}},
		{"update", true, func(ctx context.Context, c *boxservice.Client) {
			_, _ = c.UpdateSkill(ctx, "big", sessions.SkillInput{Instructions: &instructions})
		}},
		{"delete", true, func(ctx context.Context, c *boxservice.Client) { _ = c.DeleteSkill(ctx, "big") }},
		{"bring", true, func(ctx context.Context, c *boxservice.Client) { _, _ = c.Exec(ctx, skilled("true")) }},
		{"take back", true, func(ctx context.Context, c *boxservice.Client) {
			_, _ = c.Exec(ctx, skilled("cd /workspace/.skills/big && cp -r data more && echo on"))
		}},
	}
}

// A runtime that is killed in the middle of a change of a skill of several MiB
// has it as it was or as it was to be, and so have its sessions.
func TestBoxKilledWithSkills(t *testing.T) {
	t.Parallel()
	moments := []time.Duration{30 * time.Millisecond}
	if long.On() {
		moments = nil
		for d := time.Duration(0); d <= 250*time.Millisecond; d += 25 * time.Millisecond {
			moments = append(moments, d)
		}
	}
	walls := []string{"process"}
	if len(moments) > 1 {
		walls = wallNames
	}
	for _, wall := range walls {
		t.Run(wall, func(t *testing.T) {
			h := newHome(t)
			c := boxClient(t, h.boxServe(wall, nil))
			pack := bigZip(t)
			skills, err := c.InstallZip(t.Context(), pack)
			if err != nil {
				t.Fatal(err)
			}
			mount := boxservice.Mount{HostPath: skills[0].PackageRoot, MountPath: "/workspace/.skills/big", Mode: "rw"}
			all := changes(pack, mount)
			if len(moments) == 1 {
				all = []change{all[0], all[len(all)-1]}
			}
			for _, ch := range all {
				before, after := 0, 0
				for _, at := range moments {
					if !ch.big {
						at *= 4 // the archive takes its time to come
					}
					c = h.killedInChange(t, c, wall, ch, pack, at)
					if h.wholeSkill(t, c, ch, mount) {
						after++
					} else {
						before++
					}
					if t.Failed() {
						t.Fatalf("it was killed %v after it had begun to %s", at, ch.name)
					}
				}
				t.Logf("%s: %d times it was as before, %d times as after", ch.name, before, after)
			}
			_ = c.Delete(t.Context(), "skilled")
		})
	}
}

// killedInChange kills the runtime in the middle of a change, and starts it
// again.
func (h *home) killedInChange(t *testing.T, c *boxservice.Client, wall string, ch change, pack boxservice.Zip, at time.Duration) *boxservice.Client {
	t.Helper()
	_ = c.Delete(t.Context(), "skilled")
	_ = c.DeleteSkill(t.Context(), "big")
	if ch.big {
		if _, err := c.InstallZip(t.Context(), pack); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ch.do(ctx, c)
	}()
	<-time.After(at)
	h.killDaemon()
	cancel()
	<-done
	return boxClient(t, h.boxServe(wall, nil))
}

// wholeSkill looks at the store and at a session that has the package, and
// reports whether the change was made.
func (h *home) wholeSkill(t *testing.T, c *boxservice.Client, ch change, mount boxservice.Mount) (made bool) {
	t.Helper()
	own := filepath.Join(h.dir, "state/carboy/box/skills/.carboy")
	if left, err := os.ReadDir(own); err != nil || len(left) != 1 { // the lock
		t.Errorf("of the change there is left %v, %v", left, err)
	}
	list, err := c.Skills(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	there := slices.ContainsFunc(list, func(k boxservice.Skill) bool { return k.Name == "big" })
	if !there {
		if ch.name != "install" && ch.name != "delete" {
			t.Errorf("the package is gone")
		}
		return ch.name == "delete"
	}
	spec := boxservice.NewSpec("skilled", "")
	spec.Persistent, spec.ExtraMounts = true, []boxservice.Mount{mount}
	inside := strings.TrimSpace(sh(t, c, spec, "cd /workspace/.skills/big && find . -type f -exec sha256sum {} + | sort -k2"))
	// What a command that was cut off has changed is taken back with the next one.
	stored := strings.TrimSpace(tree(t, mount.HostPath))
	if inside != stored {
		t.Errorf("the session has\n%.600s\nand the store\n%.600s", inside, stored)
	}
	if left := sh(t, c, spec, "ls -A /workspace/.skills"); left != "big\n" {
		t.Errorf("beside it the session has %q", left)
	}
	files := strings.Count(stored, "\n") + 1
	k, err := c.Skill(t.Context(), "big")
	if err != nil || k == nil {
		t.Fatal(k, err)
	}
	changed := strings.HasPrefix(k.Instructions, "new ")
	if changed && len(strings.TrimSpace(k.Instructions)) != 400_000-1 || !changed && !strings.HasPrefix(k.Instructions, "use big") {
		t.Errorf("its instructions are %d bytes: %.40q", len(k.Instructions), k.Instructions)
	}
	const all = bigFiles + 1
	more := map[string]int{"write": 1, "take back": bigFiles}[ch.name]
	if cut := ch.name == "take back"; files != all && files != all+more && (!cut || files < all || files > all+more) {
		t.Errorf("it has %d files, %d or %d were to be", files, all, all+more)
	}
	return ch.name == "install" || changed || more > 0 && files == all+more
}

// tree lists files with their sums, as find and sha256sum do.
func tree(t *testing.T, dir string) string {
	t.Helper()
	out, err := shell(dir, "find . -type f -exec sha256sum {} + | sort -k2")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func shell(dir, script string) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	out, err := cmd.Output()
	return string(out), err
}

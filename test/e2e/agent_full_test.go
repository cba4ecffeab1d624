package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestAgentOnFullDisk: an agent for which there is no room does not start, says which disk
// is full, and leaves nothing; it starts once there is room.
func TestAgentOnFullDisk(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newDiskHome(t, smallDisk, 40_000)
		repo := agentWorld(t, h)
		h.edit(h.dir, map[string]string{"tools/fakeagent": "#!/bin/sh\necho well\n", "config/carboy/agents/fake.toml": roomyProvider})
		must(t, os.Chmod(h.dir+"/tools/fakeagent", 0o755))
		run := func() result { return h.run(nil, "agent", "run", "--isolation", wall, "--workspace", repo, "fake") }
		h.ok("ls")
		free := h.leave(4 << 20)
		refusedFull(t, h, run())
		if boxes, homes := h.ok("ls", "-q"), h.ok("volume", "ls"); boxes != "" || strings.Contains(homes, "home-") {
			t.Errorf("left: %q, %q", boxes, homes)
		}
		free()
		if r := run(); r.code != 0 || !strings.Contains(r.stdout, "well\n") {
			t.Errorf("with room: %+v", r)
		}
	})
}

// roomyProvider asks for nothing outside.
const roomyProvider = `
title = "Fake"
about = "an agent of tests"
program = "fakeagent"
[config]
dir = ".fake"
keep = ["{{.Config}}"]
[access]
none = true
`

package cgroup

import (
	"path"
	"path/filepath"
	"slices"
)

// Undelegated reports whether the machine has version 2 alone, and the caller is
// in no part of it that systemd delegated: a scope of its own would give it limits.
// It is false where that can't be told.
func Undelegated(root string) bool {
	info, err := readProc(root, "mountinfo")
	if err != nil {
		return false
	}
	own, err := readProc(root, "cgroup")
	if err != nil {
		return false
	}
	mounts, err := parseMounts(info)
	if err != nil || modeOf(mounts) != ModeV2 {
		return false
	}
	m := mounts[slices.IndexFunc(mounts, func(m mount) bool { return m.version == 2 })]
	if m.ro {
		return false
	}
	m.point = filepath.Join(root, m.point)
	at := ownDir(m, parseOwn(own))
	if path.Base(at) == leaf {
		at = path.Dir(at)
	}
	return at != "" && !marked(at) && !isScope(at)
}

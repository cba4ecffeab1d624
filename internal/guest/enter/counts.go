package enter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Counts are an instance's part of what the host's kernel counts beyond the instance: for
// its users, among them the maker of the instance's user namespace, or for all.
// 0 leaves a count as it is.
type Counts struct {
	Watchers  uint64 `json:"watchers"` // inotify instances of each user
	Watches   uint64 `json:"watches"`  // inotify watches of each user
	Terminals uint64 `json:"terminals"`
}

// bound sets the limits of this user namespace, which nobody in it can lift:
// /proc/sys is read-only to commands. What is counted in it is also counted
// for its maker outside, whose own programs would be left without.
func (c Counts) bound() error {
	if weak.On(weak.UserShared) || weak.On(weak.HostPIDsShared) {
		return nil // it would be the host's limit
	}
	for name, most := range map[string]uint64{"max_inotify_instances": c.Watchers, "max_inotify_watches": c.Watches} {
		if most == 0 {
			continue
		}
		err := os.WriteFile(filepath.Join("proc/sys/user", name), strconv.AppendUint(nil, most, 10), 0)
		if errors.Is(err, os.ErrNotExist) { // a kernel without inotify, or without such limits
			continue
		}
		if err != nil {
			return fmt.Errorf("limit what the instance can watch: %w", err)
		}
	}
	return nil
}

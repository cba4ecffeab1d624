package process

import (
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/enter"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// What programs need of the counts that a user has, where a share is less.
const (
	minWatchers  = 32   // inotify instances: one for each program that watches files
	minWatches   = 8192 // what kernels gave every user for years
	minTerminals = 64
)

// minShare is what an instance at work holds when it is none too large.
const minShare = 8192

// boundFiles tells the agent how many descriptors each process of a command may
// have, and how many files the instance may hold when the host's run short.
func boundFiles(c *control.Config, l sandbox.Limits) error {
	// Without ids of its own an instance is not to be told from the host's root, whose
	// limits need a right that not every root has.
	if weak.On(weak.FilesUnbounded) || weak.On(weak.UserShared) {
		return nil
	}
	most, err := instance.HostCount("fs/file-max")
	if err != nil {
		return err
	}
	c.Files, c.FilesShare = instance.FilesOf(most, l.PIDs), instance.Share(most, minShare)
	return nil
}

// counts is an instance's part of what is counted outside for the maker of its user
// namespace, and for the whole machine.
func counts() (enter.Counts, error) {
	var c enter.Counts
	if weak.On(weak.CountsUnbounded) {
		return c, nil
	}
	for _, n := range []struct {
		name  string
		least uint64
		to    *uint64
	}{
		{"fs/inotify/max_user_instances", minWatchers, &c.Watchers},
		{"fs/inotify/max_user_watches", minWatches, &c.Watches},
		{"kernel/pty/max", minTerminals, &c.Terminals},
	} {
		most, err := instance.HostCount(n.name)
		if err != nil {
			return c, err
		}
		*n.to = instance.Share(most, n.least)
	}
	return c, nil
}

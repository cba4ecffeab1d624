package cgroup

// MountForTest is mount.
var MountForTest = mount

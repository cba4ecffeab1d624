// Package machine shows commands the machine that their limits leave them, in the places
// where programs and their runtimes look for its size: the processors that they may run on,
// /proc/meminfo and its like, /sys/devices/system/cpu and /sys/fs/cgroup.
//
// Behind a wall with a kernel of its own most of that is right as it is. On the host's
// kernel /proc speaks of the host, and there is no /sys.
//
// What is shown is files of a file system in memory which the agent alone can reach to
// write, and mounts of the instance's own control groups. Commands get all of it by
// read-only mounts. Nothing here limits anything.
package machine

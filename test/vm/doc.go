// Package vm tests what needs another kernel than this machine's: it boots
// Debian's in QEMU, with disks made for the test, and runs tests in there. It
// holds tests alone, those of the host's side and those of the inside.
//
// The kernel is unpacked by scripts/deps.sh, and nothing of it is installed.
package vm

// Package install tries what is installed, and the scripts that install it, without a
// compiler: scripts/try-install.sh tries the whole, in a tree of Debian's. It holds
// tests alone.
package install

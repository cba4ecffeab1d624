//go:build cgo

package main

// cgo says that a C library is linked in, or may be.
const cgo = true

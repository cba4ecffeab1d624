//go:build !amd64

package main

var ownCalls []call

func foreignCalls(t *trial) { t.note("this processor has one manner of calls") }

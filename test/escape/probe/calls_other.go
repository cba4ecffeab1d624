//go:build !amd64

package main

var ownCalls []call

const oneManner = "this processor has one manner of calls"

func x32Calls(t *trial) { t.note(oneManner) }

func i386Calls(t *trial) { t.note(oneManner) }

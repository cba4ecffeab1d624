package rpc

import "time"

// Scan says what pieces of a document are together.
func Scan(pieces ...[]byte) string {
	var s scanner
	state := scanOpen
	for _, p := range pieces {
		state = s.add(p)
	}
	return [...]string{"open", "ended", "broken"}[state]
}

// KeepChunks adds chunks of files, and returns how many bytes are kept.
func KeepChunks(l FileLimits, chunks ...[]byte) int64 {
	f := newFiles(l, time.Now)
	for _, c := range chunks {
		_ = f.add(c)
	}
	return f.total
}

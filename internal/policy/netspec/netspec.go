// Package netspec shows policies to users, and asks them what would become of a
// request, for whoever speaks to users: the command line, the API and its
// dialects.
//
// It refuses what opens a private network to callers who may not give that
// away. It decides nothing about traffic: that is package policy's.
package netspec

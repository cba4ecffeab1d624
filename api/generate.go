// Package api holds the wire types: those of the daemon's own API here,
// envd's dialect below envd, what the guest agent offers beyond it below
// guest. It has no logic, and reads and writes nothing.
package api

//go:generate ../scripts/generate-api.sh

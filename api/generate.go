// Package api holds the wire types of the guest agent: envd's dialect below
// envd, what goes beyond it below guest. It has no logic.
package api

//go:generate ../scripts/generate-api.sh

package main

import (
	"github.com/carboy-sandbox/carboy/internal/backend/box"
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/process"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/volume/content"
)

// roleOf returns what to run where argv0 names a role of a wall or of a gate, or nil.
func roleOf(argv0 string) func() {
	for _, role := range []func(string) func(){
		box.Role, gvisor.RoleWith(egress.MakeLink), process.RoleWith(egress.MakeLink), egress.Role, content.Role, doctor.Role,
	} {
		if run := role(argv0); run != nil {
			return run
		}
	}
	return nil
}

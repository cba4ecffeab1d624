package main

import (
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor/boot"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/backend/process"
	"github.com/carboy-sandbox/carboy/internal/bench"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/volume/content"
)

// become ends in the role that argv[0] names, if it names one.
func become() {
	role.Become(
		instance.Roles(), boot.Roles(egress.MakeLink), process.Roles(egress.MakeLink),
		egress.Roles(), content.Roles(), image.Roles(), jail.Roles(), doctor.Roles(), bench.Roles(),
	)
}

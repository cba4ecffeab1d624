package main

import (
	"context"
	"os"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/uninstall"
)

// surveyHome says what this home holds.
func surveyHome(ctx context.Context, config bool) (uninstall.Survey, error) {
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		return uninstall.Survey{}, err
	}
	h := uninstall.Home{Dirs: dirs}
	if roles, err := role.NewRunner(dirs.State); err == nil {
		h.Roles = roles
	}
	return h.Survey(ctx, config)
}

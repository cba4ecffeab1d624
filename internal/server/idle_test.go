package server_test

import (
	"context"
	"io"
	"os"

	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/volume/origin"
)

// idleRoles do nothing.
type idleRoles struct{ origin.Runner }

func (idleRoles) Rootless() bool { return false }

func (idleRoles) Run(context.Context, string, io.Reader, io.Writer, ...*os.File) error { return nil }

type noGuest struct{ template.Guest }

func (noGuest) Close() {}

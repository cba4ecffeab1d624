package instance

import (
	"os"

	"github.com/carboy-sandbox/carboy/internal/role"
)

// The names by which this binary is executed again.
const (
	roleChanges = "carboy-box-changes"
	roleSave    = "carboy-box-save"
)

// Roles are those that walls have in common.
func Roles() role.Table {
	return role.Table{
		roleChanges: func() error { return changesMain(os.Stdin, os.Stdout) },
		roleSave:    func() error { return saveMain(os.Stdin, os.Stdout) },
	}
}

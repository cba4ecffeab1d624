package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/cgroup/scope"
	"github.com/carboy-sandbox/carboy/internal/home"
)

// settle gives a daemon in the background that is not root's control groups of
// its own where the user's service manager has some to give, and returns what its
// user is to know of it, and of limits that are not kept.
func settle(ctx context.Context, dirs home.Dirs, log *slog.Logger) (notes []string) {
	if os.Geteuid() == 0 {
		return unkept(nil)
	}
	if !cgroup.Undelegated("/") {
		return unkept(nil)
	}
	name := scopeName(dirs)
	err := enterScope(ctx, name, "carboy's daemon and its sandboxes, for "+dirs.State)
	if err != nil {
		log.Warn("no control groups from systemd", "error", err)
		return unkept(err)
	}
	log.Info("moved to a scope of the user's systemd", "scope", name+".scope")
	if u, err := user.Current(); err == nil && !scope.Lingers("/", u.Username) {
		notes = append(notes, fmt.Sprintf("sandboxes run in %s.scope of your systemd, and end with your last login; to keep them: loginctl enable-linger", name))
	}
	return append(notes, unkept(nil)...)
}

// enterScope has the user's service manager give this process a scope.
func enterScope(ctx context.Context, name, description string) error {
	return scope.Enter(ctx, scope.Options{
		RuntimeDirs: []string{os.Getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/run/user/%d", os.Getuid())},
		Name:        name, Description: description,
	})
}

// scopeName is of a home: a daemon after this one joins it again, and finds the
// groups of the sandboxes that went on.
func scopeName(dirs home.Dirs) string {
	sum := sha256.Sum256([]byte(dirs.State))
	return cgroup.ScopePrefix + hex.EncodeToString(sum[:6])
}

// unkept says in one line which limits of sandboxes this machine does not keep for
// the caller, and what tells the reasons.
func unkept(why error) []string {
	h, err := cgroup.Find("/", "settle")
	if err != nil {
		return nil // opening the walls fails of the same, and says so
	}
	defer h.Close()
	var lack []string
	for _, c := range h.Controllers() {
		if what := map[string]string{"memory": "memory", "cpu": "processors", "pids": "processes (of the process wall)"}[c.Name]; what != "" && !c.Usable {
			lack = append(lack, what)
		}
	}
	if os.Geteuid() != 0 {
		lack = append(lack, "disk")
	}
	if len(lack) == 0 {
		return nil
	}
	text := "not limited here: " + strings.Join(lack, ", ")
	if os.Geteuid() != 0 {
		text = "without root, " + text
	}
	if why != nil && !errors.Is(why, scope.ErrNone) {
		text += "; " + why.Error()
	}
	return []string{text + "; carboy doctor says why, and what mends it"}
}

// untold returns those of the lines that this home's user was not told before, and
// remembers them. Where nothing can be remembered, they are told again.
func untold(dirs home.Dirs, lines []string) (out []string) {
	at := filepath.Join(dirs.State, "told")
	b, _ := os.ReadFile(at)
	told := strings.Split(string(b), "\n")
	for _, l := range lines {
		if !slices.Contains(told, l) {
			out = append(out, l)
		}
	}
	if len(out) > 0 {
		_ = os.WriteFile(at, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	}
	return out
}

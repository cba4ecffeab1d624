package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/shell"
)

// What --pull takes.
const (
	pullMissing = "missing"
	pullAlways  = "always"
	pullNever   = "never"
)

// choiceValue is a flag that holds one of several words.
type choiceValue struct {
	s     *string
	words []string
}

func (v choiceValue) String() string { return "" }
func (v choiceValue) Type() string   { return "word" }
func (v choiceValue) Set(s string) error {
	if !slices.Contains(v.words, s) {
		last := len(v.words) - 1
		return fmt.Errorf("%q is not known here: use %s or %s", s, strings.Join(v.words[:last], ", "), v.words[last])
	}
	*v.s = s
	return nil
}

// isImagePath reports whether what --image names is a file or directory. A
// reference never begins or ends as these do; with a slash inside it may be
// either, and what is there is meant.
func isImagePath(s string) bool {
	if s == "." || s == ".." {
		return true
	}
	for _, p := range []string{"/", "./", "../"} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	for _, p := range []string{".tar", ".tar.gz", ".tgz"} {
		if strings.HasSuffix(s, p) {
			return true
		}
	}
	if !strings.Contains(s, "/") {
		return false
	}
	_, err := os.Stat(s)
	return err == nil
}

// checkPull refuses to pull what no registry has.
func checkPull(image, pull string) error {
	if pull != pullAlways || image != "" && image != sandbox.DefaultImage && !isImagePath(image) {
		return nil
	}
	return usage.Errorf("--pull always: --image does not name a registry's").WithHint("leave out --pull")
}

// obtain makes a sandbox, and says what its owner should know before anything
// runs in it.
func (a *app) obtain(ctx context.Context, svc Service, req *api.CreateRequest, spec *specFlags) (*api.Sandbox, error) {
	sb, err := a.makeOf(ctx, svc, req, spec)
	if err != nil {
		return nil, err
	}
	for _, w := range sb.Warnings {
		a.NoteReason("home", w)
	}
	return sb, nil
}

// makeOf makes a sandbox, with the secrets that the flags name, and before that
// the image that req names: a path is imported, and a reference that the daemon
// does not have is pulled, as the flags say.
func (a *app) makeOf(ctx context.Context, svc Service, req *api.CreateRequest, spec *specFlags) (*api.Sandbox, error) {
	if err := spec.net.resolve(ctx, a, svc, req); err != nil {
		return nil, err
	}
	pull := spec.pull
	w := &imageWork{a: a, json: a.Stderr}
	switch {
	case isImagePath(req.Image):
		img, err := w.importPath(ctx, svc, req.Image, pathName(req.Image))
		return a.createOf(ctx, svc, req, img, err)
	case pull == pullAlways:
		img, err := w.pull(ctx, svc, req.Image)
		return a.createOf(ctx, svc, req, img, err)
	}
	sb, err := svc.Create(ctx, *req)
	if sandbox.KindOf(err) != sandbox.NotFound || pull == pullNever || !pullable(req.Image) {
		return sb, err
	}
	// It may be the image, or a directory of the host.
	if _, ierr := svc.Image(ctx, req.Image); sandbox.KindOf(ierr) != sandbox.NotFound {
		return nil, err
	}
	img, err := w.pull(ctx, svc, req.Image)
	return a.createOf(ctx, svc, req, img, err)
}

// pullable reports whether a registry may have image; a bare digest says
// nothing of where.
func pullable(image string) bool {
	return image != "" && image != sandbox.DefaultImage && !strings.HasPrefix(image, "sha256:")
}

// createOf makes the sandbox of the very image that was fetched for it.
func (a *app) createOf(ctx context.Context, svc Service, req *api.CreateRequest, img *api.Image, err error) (*api.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	for _, n := range img.Notes {
		a.NoteReason("left_out", n)
	}
	of := *req
	of.Image = imageName(img)
	return svc.Create(ctx, of)
}

// entrypointValue is --entrypoint, of which "" is a value, too.
type entrypointValue struct{ s **string }

func (v entrypointValue) String() string { return "" }
func (v entrypointValue) Type() string   { return "string" }
func (v entrypointValue) Set(s string) error {
	*v.s = &s
	return nil
}

// argvOf is what a run executes in an image: its entry point, and then the
// words that were given, or the image's own where none were. An entrypoint in
// place of the image's takes none of the image's words.
func argvOf(conf *api.ImageConfig, entrypoint *string, given []string) []string {
	if conf == nil {
		conf = &api.ImageConfig{}
	}
	switch {
	case entrypoint != nil && *entrypoint != "":
		return append([]string{*entrypoint}, given...)
	case entrypoint != nil:
		return given
	case len(given) > 0:
		return slices.Concat(conf.Entrypoint, given)
	}
	return slices.Concat(conf.Entrypoint, conf.Cmd)
}

// argvIn is argvOf for a sandbox that was made.
func argvIn(sb *api.Sandbox, entrypoint *string, given []string) ([]string, error) {
	if sb.ImageDigest != "" && sb.ImageConfig == nil && entrypoint == nil {
		return nil, sandbox.Errorf(sandbox.Internal, "image %s: what it runs can't be looked up", sb.Image).
			WithHint("--entrypoint says what to run, and the daemon's log what is wrong")
	}
	argv := argvOf(sb.ImageConfig, entrypoint, given)
	if len(argv) == 0 {
		return nil, usage.Errorf("run: COMMAND is missing, and image %s has none", shell.Word(sb.Image)).
			WithHint("carboy run --image %s -- sh", shell.Word(sb.Image))
	}
	return argv, nil
}

// needsCommand reports whether a run must be given a command: the machine's
// own programs have none of their own.
func needsCommand(image string, entrypoint *string) bool {
	if entrypoint != nil {
		return *entrypoint == ""
	}
	return image == "" || image == sandbox.DefaultImage
}

package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// What Spec.Pull says.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

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
	if pull != PullAlways || image != "" && image != sandbox.DefaultImage && !isImagePath(image) {
		return nil
	}
	return usage.Errorf("--pull always: --image does not name a registry's").WithHint("leave out --pull")
}

// pathName is the name under which --image keeps what is at a path, so that
// the next import of the same path takes this one's place.
func pathName(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	base := strings.ToLower(filepath.Base(abs))
	for _, end := range []string{".tar", ".tar.gz", ".tgz"} {
		base = strings.TrimSuffix(base, end)
	}
	var b strings.Builder
	for _, c := range []byte(base) {
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			b.WriteByte(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	const most = 100
	base = strings.Trim(b.String()[:min(b.Len(), most)], "-")
	if base == "" {
		base = "image"
	}
	sum := sha256.Sum256([]byte(abs))
	return "localhost/" + base + ":path-" + hex.EncodeToString(sum[:4])
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

// Argv is what a run executes in a sandbox that was made: its image's entry point
// with given, or the image's own words where none were given. entrypoint stands in
// for the image's: nil is none said, and "" is to have none.
func Argv(sb *api.Sandbox, entrypoint *string, given []string) ([]string, error) {
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

// NeedsCommand reports whether a run must be given a command: the machine's
// own programs have none of their own.
func NeedsCommand(image string, entrypoint *string) bool {
	if entrypoint != nil {
		return *entrypoint == ""
	}
	return image == "" || image == sandbox.DefaultImage
}

// pullable reports whether a registry may have image; a bare digest says
// nothing of where.
func pullable(image string) bool {
	return image != "" && image != sandbox.DefaultImage && !strings.HasPrefix(image, "sha256:")
}

// ImageName is how an image is called where it must not be mistaken: by its
// name and digest.
func ImageName(img *api.Image) string {
	name, _, _ := strings.Cut(img.Name, "@")
	if name == "" {
		return img.Digest
	}
	return name + "@" + img.Digest
}

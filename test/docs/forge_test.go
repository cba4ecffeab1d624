package docs

import (
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// forge is a host of git repositories, which are for who has the token: team/app.git, with a commit on main.
func forge(t *testing.T, dir string) http.Handler {
	t.Helper()
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	up, first := filepath.Join(dir, "forge", "team", "app.git"), filepath.Join(dir, "forge", "first")
	git("init", "-q", "--bare", "-b", "main", up)
	git("init", "-q", "-b", "main", first)
	git("-C", first, "commit", "-q", "--allow-empty", "-m", "first")
	git("-C", first, "push", "-q", up, "main")
	h := &cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"),
		Env:  append(env, "GIT_PROJECT_ROOT="+filepath.Join(dir, "forge"), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a"),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pass, _ := r.BasicAuth(); pass != token {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

package hostimage_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
)

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestTools(t *testing.T) {
	home := t.TempDir()
	for _, f := range []string{
		".cargo/bin/cargo", ".cargo/credentials.toml", ".rustup/settings.toml",
		".nvm/versions/node/v9.11.2/bin/node", ".nvm/versions/node/v20.1.0/bin/node", ".nvm/.npmrc",
		".local/share/uv/python/cpython-3.12/bin/python3", ".config/uv/credentials.json",
	} {
		write(t, filepath.Join(home, f))
	}
	tools := map[string]hostimage.Tool{}
	for _, tool := range hostimage.Tools(home) {
		tools[tool.Name] = tool
		for _, secret := range []string{".cargo/credentials.toml", ".nvm/.npmrc", ".config/uv/credentials.json"} {
			if rel, err := filepath.Rel(tool.Path, filepath.Join(home, secret)); err == nil && filepath.IsLocal(rel) {
				t.Errorf("%s shows %s", tool.Name, secret)
			}
		}
	}
	for name, want := range map[string][]string{
		"cargo": {".cargo/bin"}, "uv": {".local/share/uv/python/cpython-3.12/bin"},
		"nvm": {".nvm/versions/node/v20.1.0/bin", ".nvm/versions/node/v9.11.2/bin"}, "rustup": nil,
	} {
		var got []string
		for _, d := range tools[name].Search {
			rel, _ := filepath.Rel(home, d)
			got = append(got, rel)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: search %q, want %q", name, got, want)
		}
	}
	if got, want := tools["rustup"].Env["RUSTUP_HOME"], filepath.Join(home, ".rustup"); got != want {
		t.Errorf("RUSTUP_HOME = %q, want %q", got, want)
	}
	if _, ok := tools["pyenv"]; ok {
		t.Error("pyenv was found where there is none")
	}
}

// A home's owner can't have another's directory shown by a link.
func TestToolsFollowNoLink(t *testing.T) {
	home, secret := t.TempDir(), t.TempDir()
	write(t, filepath.Join(secret, "bin", "key"))
	for _, link := range []string{".cargo", ".pyenv"} {
		if err := os.Symlink(secret, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range hostimage.Tools(home) {
		if tool.Name != "opt" {
			t.Errorf("%s was found behind a link", tool.Name)
		}
	}
	write(t, filepath.Join(home, "go", "bin", "gopls"))
	if !slices.ContainsFunc(hostimage.Tools(home), func(tool hostimage.Tool) bool { return tool.Name == "go" }) {
		t.Error("a directory that is no link was not found")
	}
}

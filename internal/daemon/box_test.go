package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/home"
)

func TestBoxConfig(t *testing.T) {
	tests := []struct{ name, config, want string }{
		{"nothing", `{}`, ""},
		{"loopback", `{"listen":"127.0.0.1:5410"}`, ""},
		{"everywhere-without-a-token", `{"listen":"0.0.0.0:5410"}`, "no control token is set"},
		{"everywhere-with-one", `{"listen":"0.0.0.0:5410","control_token_file":"/etc/token"}`, ""},
		{"a-certificate", `{"tls_cert":"/c","tls_key":"/k"}`, ""},
		{"a-certificate-without-its-key", `{"listen":"127.0.0.1:5410","tls_cert":"/c"}`, "box.tls_cert and box.tls_key"},
		{"a-key-alone", `{"tls_key":"/k"}`, "box.tls_cert and box.tls_key"},
		{"everywhere-with-a-certificate-alone", `{"listen":"0.0.0.0:5410","tls_cert":"/c","tls_key":"/k"}`, "no control token is set"},
		{"no-address", `{"listen":"5410"}`, "not an address"},
		{"unknown-profile", `{"profile":"nope"}`, "box.profile: "},
		{"a-profile-of-its-own", `{"profile":"mine","profiles":{"mine":{}}}`, ""},
		{"off-and-listening", `{"enabled":false,"listen":"127.0.0.1:5410"}`, "box.enabled is false"},
		{"unknown-field", `{"backend":"nsjail"}`, "backend"},
		{"relative-root", `{"host_root":"data"}`, "box.host_root"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dirs := home.Dirs{State: t.TempDir(), Config: t.TempDir(), Run: t.TempDir(), Cache: t.TempDir()}
			if err := os.WriteFile(filepath.Join(dirs.Config, "config.json"), []byte(`{"box":`+tt.config+`}`), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := daemon.ReadConfig(dirs)
			if err == nil {
				err = cfg.Validate()
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestBoxEnvironment(t *testing.T) {
	token := strings.Repeat("t", 40)
	tests := []struct {
		name string
		env  map[string]string
		file bool
		want string // an error
	}{
		{"nothing", nil, false, ""},
		{"all", map[string]string{langbot.EnvControlToken: token, langbot.EnvInstance: "i", langbot.EnvConfig: `{"local":{}}`}, false, ""},
		{"a-weak-token", map[string]string{langbot.EnvControlToken: "short"}, false, "at least 32"},
		{"a-weak-token-that-does-not-count", map[string]string{langbot.EnvControlToken: "short"}, true, ""},
		{"another-instance", map[string]string{langbot.EnvInstance: "j"}, true, "box.instance"},
		{"no-json", map[string]string{langbot.EnvConfig: `{`}, false, "no JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var cfg daemon.Config
			if tt.file {
				cfg.Box.ControlTokenFile, cfg.Box.Instance = "/etc/token", "i"
			}
			for _, name := range []string{langbot.EnvControlToken, langbot.EnvConfig} {
				t.Setenv(name, tt.env[name])
			}
			err := cfg.ApplyBoxEnvironment(func(name string) string { return tt.env[name] })
			switch {
			case tt.want != "":
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "short") {
					t.Errorf("%v, want %q", err, tt.want)
				}
			case err != nil:
				t.Error(err)
			case !tt.file && cfg.Box.Token != tt.env[langbot.EnvControlToken], string(cfg.Box.Host) != tt.env[langbot.EnvConfig]:
				t.Errorf("it has %+v", cfg.Box)
			}
			if _, there := os.LookupEnv(langbot.EnvControlToken); err == nil && there {
				t.Error("the token is still in the environment")
			}
		})
	}
}

package daemon_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// readConfig reads a config.json with that text.
func readConfig(t *testing.T, text string) (daemon.Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := daemon.ReadConfig(home.Dirs{Config: dir})
	if err == nil {
		err = cfg.Validate()
	}
	return cfg, err
}

func TestConfigOfThePool(t *testing.T) {
	tests := []struct {
		name, file   string
		served, auto int // the sizes of the pool
		memory       daemon.Size
		want         string // in the error
	}{
		{name: "none", file: `{}`, served: 2, auto: 0, memory: 1 << 30},
		{name: "off", file: `{"pool":0}`, served: 0, auto: 0, memory: 1 << 30},
		{name: "set", file: `{"pool":5,"pool_memory":"512m"}`, served: 5, auto: 5, memory: 512 << 20},
		{name: "null", file: `{"pool":null}`, served: 2, auto: 0, memory: 1 << 30},
		{name: "bytes", file: `{"pool_memory":123456}`, served: 2, memory: 123456},
		{name: "text-bytes", file: `{"pool_memory":"123456"}`, served: 2, memory: 123456},
		{name: "kilo", file: `{"pool_memory":"70k"}`, served: 2, memory: 70 << 10},
		{name: "upper", file: `{"pool_memory":"3G"}`, served: 2, memory: 3 << 30},
		{name: "tera", file: `{"pool_memory":"1t"}`, served: 2, memory: 1 << 40},
		{name: "largest", file: `{"pool_memory":9223372036854775807}`, served: 2, memory: 1<<63 - 1},
		{name: "negative", file: `{"pool":-1}`, want: "pool -1"},
		{name: "too-many", file: `{"pool":101}`, want: "pool 101"},
		{name: "text", file: `{"pool":"2"}`, want: `"pool"`},
		{name: "no-memory", file: `{"pool_memory":0}`, want: "pool_memory"},
		{name: "negative-memory", file: `{"pool_memory":-1}`, want: "pool_memory"},
		{name: "fraction", file: `{"pool_memory":1.5}`, want: "pool_memory"},
		{name: "unit-alone", file: `{"pool_memory":"g"}`, want: "pool_memory"},
		{name: "other-unit", file: `{"pool_memory":"1x"}`, want: "pool_memory"},
		{name: "two-units", file: `{"pool_memory":"1gb"}`, want: "pool_memory"},
		{name: "signed", file: `{"pool_memory":"+1g"}`, want: "pool_memory"},
		{name: "space", file: `{"pool_memory":"1 g"}`, want: "pool_memory"},
		{name: "empty", file: `{"pool_memory":""}`, want: "pool_memory"},
		{name: "overflow", file: `{"pool_memory":"8388608t"}`, want: "pool_memory"},
		{name: "long", file: `{"pool_memory":99999999999999999999}`, want: "pool_memory"},
		{name: "null-memory", file: `{"pool_memory":null}`, want: "pool_memory"},
		{name: "list", file: `{"pool_memory":["1g"]}`, want: "pool_memory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := readConfig(t, tt.file)
			if tt.want != "" {
				if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error = %v, want an invalid with %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			served := cfg.PoolSize()
			cfg.Auto = true
			if auto := cfg.PoolSize(); served != tt.served || auto != tt.auto || cfg.PoolMemory != tt.memory {
				t.Errorf("pool = %d, %d by a client's, of %d bytes; want %d, %d, %d",
					served, auto, cfg.PoolMemory, tt.served, tt.auto, tt.memory)
			}
		})
	}
}

// How long a slow machine is waited for can be set, and not to nothing.
func TestConfigOfTimes(t *testing.T) {
	for _, tt := range []struct {
		name, file     string
		start, measure time.Duration
		want           string // in the error
	}{
		{name: "none", file: `{}`, start: 2 * time.Minute, measure: 10 * time.Second},
		{name: "set", file: `{"start_time":"10m","measure_time":"1m"}`, start: 10 * time.Minute, measure: time.Minute},
		{name: "no-start", file: `{"start_time":"0s"}`, want: "start_time"},
		{name: "negative", file: `{"measure_time":"-1s"}`, want: "measure_time"},
		{name: "number", file: `{"start_time":30}`, want: "start_time"},
		{name: "silence", file: `{"box":{"silence_sec":90000}}`, want: "box.silence_sec"},
		{name: "negative-silence", file: `{"box":{"silence_sec":-1}}`, want: "box.silence_sec"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := readConfig(t, tt.file)
			if tt.want != "" {
				if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error = %v, want an invalid with %q", err, tt.want)
				}
				return
			}
			if start, measure := time.Duration(cfg.StartTime), time.Duration(cfg.MeasureTime); err != nil || start != tt.start || measure != tt.measure {
				t.Errorf("%v, %v, %v; want %v, %v", start, measure, err, tt.start, tt.measure)
			}
		})
	}
}

// What others could have written is not read, and a pipe holds nothing up.
func TestFilesOfOthers(t *testing.T) {
	dirs := newHome(t)
	if err := os.MkdirAll(dirs.Config, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dirs.Config, "config.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.ReadConfig(dirs); err != nil { // the control
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.ReadConfig(dirs); sandbox.KindOf(err) != sandbox.Denied {
		t.Errorf("a configuration that others may write: %v, want denied", err)
	}
	fifo := filepath.Join(dirs.Config, "keys")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := daemon.DefaultConfig(dirs)
	cfg.Listen, cfg.APIKeyFile = "127.0.0.1:0", fifo
	if err := daemon.Run(t.Context(), cfg, daemon.Deps{}); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a pipe for keys: %v, want that it is no regular file", err)
	}
}

// A directory that the configuration names is written to only where nobody else
// can lead root elsewhere.
func TestDirectoriesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what is another user's")
	}
	const stranger = 4242
	for _, setting := range []string{"host_root", "skills_root"} {
		for _, tt := range []struct {
			name  string
			spoil func(dir string) error // dir is what leads to the setting's
			want  sandbox.Kind
		}{
			{"own", func(dir string) error { return os.Mkdir(dir, 0o755) }, ""},
			{"missing", func(string) error { return nil }, ""},
			{"own-link", func(dir string) error { return errors.Join(os.Mkdir(dir+"-real", 0o755), os.Symlink(dir+"-real", dir)) }, ""},
			{"users-directory", func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, stranger, stranger)) }, sandbox.Denied},
			{"users-link", func(dir string) error {
				return errors.Join(os.Mkdir(dir+"-real", 0o755), os.Symlink(dir+"-real", dir), os.Lchown(dir, stranger, stranger))
			}, sandbox.Denied},
			{"open-to-others", func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)) }, sandbox.Denied},
		} {
			t.Run(setting+"/"+tt.name, func(t *testing.T) {
				cfg := daemon.DefaultConfig(newHome(t))
				dir := filepath.Join(t.TempDir(), "way")
				if err := tt.spoil(dir); err != nil {
					t.Fatal(err)
				}
				if setting == "host_root" {
					cfg.Box.HostRoot = dir + "/data"
				} else {
					cfg.Box.SkillsRoot = dir + "/data"
				}
				if tt.want == "" {
					run(t, cfg, deps(sandboxtest.New("gvisor")))
					return
				}
				ctx, serves := context.WithCancel(t.Context())
				defer serves()
				with := deps(sandboxtest.New("gvisor"))
				with.Ready = func([]net.Addr) { serves() }
				err := daemon.Run(ctx, cfg, with)
				if sandbox.KindOf(err) != tt.want || !strings.Contains(err.Error(), "box."+setting) || !strings.Contains(err.Error(), dir) {
					t.Errorf("Run = %v, want it denied by the setting's name", err)
				}
				if _, err := os.Stat(dir + "/data"); err == nil {
					t.Error("something was made there all the same")
				}
			})
		}
	}
}

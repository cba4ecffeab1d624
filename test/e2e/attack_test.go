package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// attempted is what became of one attempt.
type attempted struct {
	Name  string   `json:"name"`
	Found string   `json:"found"`
	Got   []string `json:"got"`
	Error string   `json:"error"`
}

// attackerDir holds the built attacker.
var attackerDir = sync.OnceValues(func() (string, error) {
	dir, err := shared.mkdir("carboy-attacker-*")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(dir, "attacker"), "./attacker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the attacker: %w: %s", err, out)
	}
	return dir, os.Chmod(dir, 0o755)
})

func presetFirst(t testing.TB, name string) string {
	t.Helper()
	for _, p := range policy.Presets() {
		if p.Name == name {
			return p.Rules[0].Hosts[0]
		}
	}
	t.Fatalf("there is no preset %s", name)
	return ""
}

// siege is an arena with a home in it.
type siege struct {
	*arena
	h    *home
	t    *testing.T
	wall string
}

func newSiege(t *testing.T, wall string, env ...string) *siege {
	t.Helper()
	a := newArena(t)
	return &siege{arena: a, h: a.home(append(env, "TOKEN="+realToken)...), t: t, wall: wall}
}

// weakened has the home run the binary that lacks what is named.
func weakened(t *testing.T, seeds []weak.Weakness) *siege {
	t.Helper()
	bin := os.Getenv("CARBOY_WEAK_BIN")
	if bin == "" {
		t.Skip("CARBOY_WEAK_BIN is not set: make weak builds it")
	}
	s := newSiege(t, "process", "CARBOY_WEAKEN="+joinWeak(seeds, ","), "CARBOY_WEAK_GUEST="+os.Getenv("CARBOY_WEAK_GUEST"))
	inWorld := s.h.start
	s.h.start = func(c *exec.Cmd) error {
		c.Path, c.Args[0] = bin, bin
		return inWorld(c)
	}
	s.serve()
	return s
}

// serve starts the daemon with the home's environment: one that a command
// starts has an environment of its own. The home's end stops it.
func (s *siege) serve() {
	daemon := s.h.command(context.Background(), "serve")
	if err := s.h.start(daemon); err != nil {
		s.t.Fatal(err)
	}
	go daemon.Wait() // its end says nothing
	until(s.t, func() bool { return s.h.run(nil, "daemon", "status").code == 0 })
}

// make creates a sandbox for attempts.
func (s *siege) make(box attackBox) (name string, err error) {
	dir, err := attackerDir()
	if err != nil {
		return "", err
	}
	args := []string{"create", "--isolation", s.wall, "--mount", dir + ":/attack:ro"}
	if box.name == "crowd" { // fewer processes, and more descriptors for each
		args = append(args, "--pids", "24")
	}
	if box.public {
		args = append(args, "--network", "on")
	} else {
		text := attackPolicy
		if box.name == "changing" {
			text += laterRules
		}
		args = append(args, "--secret", "TOKEN", "--policy", s.h.write(box.name+".yaml", text))
	}
	r := s.h.run(nil, args...)
	if r.code != 0 {
		return "", fmt.Errorf("create: %s", r.stderr)
	}
	return strings.TrimSpace(r.stdout), nil
}

// attack makes attempts in one sandbox.
func (s *siege) attack(box attackBox, names []string) (all []attempted, err error) {
	name, err := s.make(box)
	if err != nil {
		return nil, err
	}
	switch box.name {
	case "pair":
		if err := s.neighbour(box); err != nil {
			return nil, err
		}
	case "changing":
		defer s.changePolicy(name)()
	}
	began := time.Now()
	inside := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return outsideAttempts[n] != nil })
	if len(inside) > 0 {
		args := append([]string{"exec", "--env", "REGISTRY=" + s.registry, "--env", fmt.Sprintf("CARBOY_PATIENCE=%g", patience.Factor()), name, "--", "/attack/attacker"}, inside...)
		r := s.h.run(nil, args...)
		if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
			return nil, fmt.Errorf("the attacker: exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
	}
	for _, n := range names {
		if outsideAttempts[n] != nil {
			all = append(all, attempted{Name: n})
		}
	}
	for i := range all {
		s.judgeOne(&all[i], name, time.Since(began))
	}
	return all, nil
}

// judgeOne adds what reached the world's servers to what an attempt says, which took no
// longer than took.
func (s *siege) judgeOne(got *attempted, box string, took time.Duration) {
	if got.Found == "" {
		got.Found = s.foundBy(got.Name)
	}
	if look := outsideAttempts[got.Name]; got.Found == "" && look != nil {
		got.Found = look(s)
	}
	for _, text := range got.Got {
		if holdsToken(text) {
			got.Found = fmt.Sprintf("the token: %.200q", text)
		}
	}
	if got.Found != "" {
		return
	}
	switch got.Name {
	case "logged-escapes":
		got.Found = unprintable(s.h.ok("net", "log", box))
	case "dns-tunnel":
		most := int(60 * (1 + took.Minutes())) // over the bound of a minute, and what time gives back
		if n := len(s.askedLike(".tunnel.example.")); n > most {
			got.Found = fmt.Sprintf("%d names arrived", n)
		}
	case "dns-types":
		for _, q := range s.askedLike("dns-types.wild.example.") {
			if !strings.HasPrefix(q, "A ") && !strings.HasPrefix(q, "AAAA ") {
				got.Found = q
			}
		}
	case "dns-unlisted", "trailing-dots", "case-and-idn":
		got.Found = strings.Join(s.askedLike("evil.example."), ", ")
	case "dns-elsewhere":
		got.Found = strings.Join(s.askedLike("dns-elsewhere."), ", ")
	case "by-number":
		got.Found = strings.Join(append(s.askedLike("10.77.1."), s.askedLike("0x")...), ", ")
	}
}

// askedLike are the questions about names with a text in them.
func (s *siege) askedLike(text string) (found []string) {
	for _, q := range s.asked() {
		if strings.Contains(q, text) {
			found = append(found, q)
		}
	}
	return found
}

// unprintable is the first line that would do more to a terminal than be read.
func unprintable(text string) string {
	for line := range strings.Lines(text) {
		for _, c := range strings.TrimSuffix(line, "\n") {
			if c < ' ' && c != '\t' || c >= 0x7f && c < 0xa0 || c == 0x202e {
				return fmt.Sprintf("%q", line)
			}
		}
	}
	return ""
}

// outsideAttempts look at the gate from the host: nothing inside could tell.
var outsideAttempts = map[string]func(*siege) string{
	"gate-rights": func(s *siege) (found string) {
		for pid, status := range s.gates() {
			root, err := os.Readlink(fmt.Sprintf("/proc/%d/root", pid))
			if uid := strings.Fields(status["Uid"]); uid[0] == "0" || err != nil || root == "/" {
				found = fmt.Sprintf("a gate of user %s whose root is %s", uid[0], root)
			}
		}
		return found
	},
	"gate-calls": func(s *siege) (found string) {
		for _, status := range s.gates() {
			if status["Seccomp"] != "2" {
				found = "a gate whose mode of seccomp is " + status["Seccomp"]
			}
		}
		return found
	},
}

// gates are the home's gate processes, with what the kernel says of them.
func (s *siege) gates() map[int]map[string]string {
	all := map[int]map[string]string{}
	for _, pid := range boxProcesses(s.t, s.h) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !strings.HasPrefix(string(cmdline), "carboy-gate\x00") {
			continue
		}
		all[pid] = map[string]string{}
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(raw)) {
			key, value, _ := strings.Cut(line, ":")
			all[pid][key] = strings.TrimSpace(value)
		}
	}
	if len(all) == 0 {
		s.t.Error("no gate runs")
	}
	return all
}

// neighbour is another sandbox, in which somebody listens.
func (s *siege) neighbour(box attackBox) error {
	name, err := s.make(box)
	if err != nil {
		return err
	}
	cmd := s.h.command(s.t.Context(), "exec", name, "--", "/attack/attacker", "listen")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.h.start(cmd); err != nil {
		return err
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	first := make([]byte, 9)
	if _, err := out.Read(first); err != nil || string(first) != "listening" {
		return fmt.Errorf("the other sandbox says %q, %w", first, err)
	}
	return nil
}

// changePolicy takes rules away once their streams are open.
func (s *siege) changePolicy(name string) (wait func()) {
	var done sync.WaitGroup
	file := s.h.write("less.yaml", attackPolicy)
	done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for late := time.Now().Add(patience.For(30 * time.Second)); !s.bothBegan(); <-tick.C {
			if time.Now().After(late) {
				s.t.Error("the streams did not begin")
				return
			}
		}
		if r := s.h.run(nil, "policy", "set", name, "--policy", file); r.code != 0 {
			s.t.Errorf("policy set: %s", r.stderr)
		}
		s.changed.Store(time.Now().UnixNano())
	})
	return done.Wait
}

// TestAttacks makes every attempt behind every wall: nothing may come of it.
func TestAttacks(t *testing.T) {
	for _, wall := range wallNames {
		t.Run(wall, func(t *testing.T) {
			s := newSiege(t, wall)
			t.Run("boxes", func(t *testing.T) {
				for _, box := range attackBoxes {
					t.Run(box.name, func(t *testing.T) {
						t.Parallel()
						all, err := s.attack(box, box.attempts)
						if err != nil {
							t.Fatal(err)
						}
						for _, got := range all {
							if got.Error != "" {
								t.Errorf("%s could not be made: %s", got.Name, got.Error)
							}
							if got.Found != "" {
								t.Errorf("finding: %s: %s", got.Name, got.Found) // test/report has no second try for it
							}
						}
					})
				}
			})
		})
	}
}

package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const guestCA = "/usr/local/share/ca-certificates/carboy.crt"

// fingerprint is that of the one certificate in a PEM text.
func fingerprint(t *testing.T, text string) [sha256.Size]byte {
	t.Helper()
	block, rest := pem.Decode([]byte(text))
	if block == nil || strings.TrimSpace(string(rest)) != "" {
		t.Fatalf("not one certificate: %q", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !cert.IsCA {
		t.Fatalf("not an authority's certificate: %v", err)
	}
	return sha256.Sum256(cert.Raw)
}

// gateState is what the daemon keeps of the gate of a sandbox, and its file.
func (h *home) gateState(name string) (file string, st map[string]json.RawMessage) {
	h.t.Helper()
	for _, sb := range h.list() {
		if sb.Name != name {
			continue
		}
		file = filepath.Join(h.dir, "state", "carboy", "gates", sb.ID, "gate.json")
		raw, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(raw, &st)
		}
		if err != nil {
			h.t.Fatal(err)
		}
		return file, st
	}
	h.t.Fatalf("no sandbox %s", name)
	return "", nil
}

func (h *home) gateText(name, field string) (text string) {
	h.t.Helper()
	_, st := h.gateState(name)
	if err := json.Unmarshal(st[field], &text); err != nil {
		h.t.Fatal(err)
	}
	return text
}

// TestProvisionCA holds that a sandbox with a network trusts its gate before
// its first command runs, and is not started where it could not.
func TestProvisionCA(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		w := newWorld(t)
		h := w.home()
		t.Run("test_egress_ca_always_installed", func(t *testing.T) { alwaysInstalled(t, h, wall) })
		t.Run("test_dies_when_egress_cert_missing", func(t *testing.T) { diesWithoutCertificate(t, h, wall) })
	})
}

func alwaysInstalled(t *testing.T, h *home, wall string) {
	seen := map[[sha256.Size]byte]bool{}
	for _, flags := range [][]string{{"--network", "on"}, {"--allow", "pypi"}, {"--allow", "10.77.0.1:5432"}} {
		name := h.create(append([]string{"--isolation", wall}, flags...)...)
		got := h.ok("exec", name, "--", "sh", "-c", "stat -c '%a %U' "+guestCA+"; cat "+guestCA)
		mode, cert, _ := strings.Cut(got, "\n")
		if mode != "644 root" {
			t.Errorf("%q: it is there as %q", flags, mode)
		}
		sum := fingerprint(t, cert)
		if sum != fingerprint(t, h.gateText(name, "cert")) {
			t.Errorf("%q: the guest trusts another certificate than its gate has", flags)
		}
		if seen[sum] {
			t.Errorf("%q: another sandbox has the same", flags)
		}
		seen[sum] = true
		bundle := h.ok("exec", name, "--", "cat", "/etc/ssl/certs/ca-certificates.crt")
		if !strings.Contains(bundle, strings.TrimSpace(cert)) {
			t.Errorf("%q: the system's bundle does not have it", flags)
		}
		key := strings.Split(h.gateText(name, "key"), "\n")[1]
		if r := h.run(nil, "exec", "--user", "root", name, "--", "grep", "-rlF", key, "/etc/ssl", "/usr/local/share", "/run", "/home", "/tmp"); strings.TrimSpace(r.stdout) != "" {
			t.Errorf("%q: its key is in the guest: %s", flags, r.stdout)
		}
		h.ok("stop", name)
		h.ok("start", name)
		if again := h.ok("exec", name, "--", "cat", guestCA); fingerprint(t, again) != sum {
			t.Errorf("%q: it is another after a start", flags)
		}
		h.ok("rm", "-f", name)
	}
	if r := h.run(nil, "run", "--isolation", wall, "--", "cat", guestCA); r.code == 0 {
		t.Errorf("without a network there is one: %s", r.stdout)
	}
}

func diesWithoutCertificate(t *testing.T, h *home, wall string) {
	name := h.create("--isolation", wall, "--network", "on")
	other := h.create("--isolation", wall, "--network", "on")
	stranger := h.gateText(other, "key")
	h.ok("rm", "-f", other)
	h.ok("stop", name)
	file, whole := h.gateState(name)
	for what, change := range map[string][2]string{
		"no-certificate": {"cert", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"},
		"no-key":         {"key", ""},
		"another's-key":  {"key", stranger},
	} {
		writeState(t, file, whole, change[0], change[1])
		for _, args := range [][]string{{"start", name}, {"exec", name, "--", "echo", "it", "ran"}} {
			r := h.run(nil, args...)
			if r.code == 0 || strings.Contains(r.stdout, "it ran") || r.stderr == "" {
				t.Errorf("%s: carboy %q: exit code %d, %q, %q", what, args, r.code, r.stdout, r.stderr)
			}
		}
		if pids := boxProcesses(t, h); len(pids) > 0 {
			t.Errorf("%s: processes %v run", what, pids)
		}
		if sb := h.list()[0]; sb.State == "running" {
			t.Errorf("%s: it is %s", what, sb.State)
		}
	}
	writeState(t, file, whole, "", "")
	h.ok("start", name)
	if got := h.ok("exec", name, "--", "echo", "it", "ran"); got != "it ran\n" {
		t.Errorf("with its certificate: %q", got)
	}
	h.ok("rm", "-f", name)
}

// writeState writes st to file, with one text changed.
func writeState(t *testing.T, file string, st map[string]json.RawMessage, field, text string) {
	t.Helper()
	changed := map[string]json.RawMessage{}
	for k, v := range st {
		changed[k] = v
	}
	if field != "" {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		changed[field] = raw
	}
	raw, err := json.Marshal(changed)
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

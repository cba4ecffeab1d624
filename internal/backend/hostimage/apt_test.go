package hostimage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
)

func TestAptLines(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		deb822     bool
		want       []string
	}{
		{name: "one-line", text: "deb http://d.example/debian trixie main contrib # ours\ndeb-src http://d.example/debian trixie main\n\n# deb http://x.example/ trixie main\n", want: []string{"deb http://d.example/debian trixie main contrib\n"}},
		{name: "options", text: "deb [ arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg ] https://d.example/debian trixie-updates main", want: []string{"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] https://d.example/debian trixie-updates main\n"}},
		{name: "key-elsewhere", text: "deb [signed-by=/etc/apt/keyrings/k.gpg] https://d.example/debian trixie main", want: []string{"deb https://d.example/debian trixie main\n"}},
		{name: "key-upwards", text: "deb [signed-by=/usr/share/keyrings/../../../etc/k.gpg] https://d.example/debian trixie main", want: []string{"deb https://d.example/debian trixie main\n"}},
		{name: "password", text: "deb https://me:s3cret@d.example/debian trixie main"},
		{name: "query", text: "deb https://d.example/debian?token=s3cret trixie main"},
		{name: "others", text: "deb https://packages.example/apt cloud-trixie main\ndeb https://docker.example/linux trixie stable\ndeb https://d.example/debian bookworm main\ndeb https://d.example/debian trixier main"},
		{name: "schemes", text: "deb file:/srv/debian trixie main\ndeb cdrom:[Debian]/ trixie main\ndeb tor+http://d.example/ trixie main"},
		{name: "strange-words", text: "deb https://d.example/debian trixie main $(x)\ndeb https://d.example/debian trixie main [trusted=yes]"},
		{
			name: "paragraphs", deb822: true,
			text: "Types: deb deb-src\n# comment: x\nURIs: http://d.example/debian\n http://e.example/debian\nSuites: trixie trixie-updates\nComponents: main\nSigned-By: /usr/share/keyrings/k.gpg\n\nTypes: deb\nURIs: http://d.example/security\nSuites: trixie-security\nComponents: main\nEnabled: yes\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQ==\n",
			want: []string{
				"deb [signed-by=/usr/share/keyrings/k.gpg] http://d.example/debian trixie main\n", "deb [signed-by=/usr/share/keyrings/k.gpg] http://d.example/debian trixie-updates main\n",
				"deb [signed-by=/usr/share/keyrings/k.gpg] http://e.example/debian trixie main\n", "deb [signed-by=/usr/share/keyrings/k.gpg] http://e.example/debian trixie-updates main\n",
				"deb http://d.example/security trixie-security main\n",
			},
		},
		{name: "off", deb822: true, text: "Types: deb\nURIs: http://d.example/debian\nSuites: trixie\nComponents: main\nEnabled: no\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, hostimage.AptLines(tt.text, tt.deb822, "trixie")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	if got := hostimage.AptLines("deb http://d.example/debian trixie main", false, ""); got != nil {
		t.Errorf("of a release without a name there are %q", got)
	}
}

// What apt may install from is the distribution's own, without what was meant for root alone.
func TestAptSources(t *testing.T) {
	root := machine(t, map[string]string{
		"usr/lib/os-release":                     "ID=debian\nVERSION_CODENAME=trixie\n",
		"etc/apt/sources.list":                   "deb https://d.example/debian trixie main\n",
		"etc/apt/sources.list.d/more.sources":    "Types: deb\nURIs: https://d.example/security\nSuites: trixie-security\nComponents: main\n",
		"etc/apt/sources.list.d/closed.list":     "deb https://secret.example/debian trixie main\n",
		"etc/apt/sources.list.d/link.list":       "-> ../../../root/link.list",
		"root/link.list":                         "deb https://secret.example/debian trixie main\n",
		"etc/apt/sources.list.d/other.list.save": "deb https://old.example/debian trixie main\n",
	})
	if err := os.Chmod(filepath.Join(root, "etc/apt/sources.list.d/closed.list"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := read(t, skeleton(t, t.TempDir(), hostimage.Options{HostRoot: root}), "etc/apt/sources.list")
	want := "# Of this machine's, what is the distribution's own.\ndeb https://d.example/debian trixie main\ndeb https://d.example/security trixie-security main\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func FuzzAptLines(f *testing.F) {
	f.Add("deb [signed-by=/usr/share/keyrings/k.gpg] https://d.example/debian trixie main\n", false)
	f.Add("Types: deb\nURIs: https://d.example/debian\nSuites: trixie\nComponents: main\nSigned-By:\n x\n", true)
	f.Fuzz(func(t *testing.T, text string, deb822 bool) {
		for _, line := range hostimage.AptLines(text, deb822, "trixie") {
			again := hostimage.AptLines(line, false, "trixie")
			if len(again) != 1 || again[0] != line || strings.Count(line, "\n") != 1 || strings.Contains(line, "@") {
				t.Errorf("%q is read as %q", line, again)
			}
		}
	})
}

package subid_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/subid"
)

func TestMend(t *testing.T) {
	const install = "apt-get install uidmap"
	passwd := "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob smith:x:1001:1001::/:/bin/sh\n"
	tests := []struct {
		name                          string
		subuid, subgid, passwd, group string
		uid                           int
		tools                         bool
		want                          string
	}{
		{name: "nothing-missing", subuid: "ann:100000:65536\n", subgid: "1000:100000:65536\n", uid: 1000},
		{name: "package-alone", subuid: "ann:100000:65536\n", subgid: "ann:100000:65536\n", uid: 1000, tools: true, want: install},
		{name: "first-range", uid: 1000, want: "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ann"},
		{name: "both", uid: 1000, tools: true, want: install + " && usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ann"},
		{
			name: "others-have-it", subuid: "bob:100000:65536\n", subgid: "eve:165536:65536\n", uid: 1000,
			want: "usermod --add-subuids 231072-296607 --add-subgids 231072-296607 ann",
		},
		{
			name: "own-is-too-small", subuid: "ann:100000:1000\n", uid: 1000,
			want: "usermod --add-subuids 101000-166535 --add-subgids 101000-166535 ann",
		},
		{name: "one-file-alone", subuid: "ann:100000:65536\n", uid: 1000, want: "usermod --add-subgids 165536-231071 ann"},
		{
			name: "an-account-is-there", passwd: "big:x:100005:7::/:/bin/sh\n", group: "g:x:150000:\n", uid: 1000,
			want: "usermod --add-subuids 150001-215536 --add-subgids 150001-215536 ann",
		},
		{
			name: "a-gap", subuid: "a:100000:10\nb:200000:65536\n", uid: 1000,
			want: "usermod --add-subuids 100010-165545 --add-subgids 100010-165545 ann",
		},
		{name: "quoted", uid: 1001, want: "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 'bob smith'"},
		{name: "no-account", uid: 70000, want: "echo 70000:100000:65536 >> /etc/subuid && echo 70000:100000:65536 >> /etc/subgid"},
		{name: "none-left", subuid: "a:1:4000000000\n", uid: 1000},
		{
			name: "nonsense", subuid: "a:x:1\nb:-5:10\nc:100000:\n:::\n", uid: 1000,
			want: "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ann",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{"passwd": passwd + tt.passwd, "group": tt.group, "subuid": tt.subuid, "subgid": tt.subgid} {
				at := filepath.Join(root, "etc", name)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := subid.Mend(subid.Lack{Root: root, UID: tt.uid, Count: 65536, Tools: tt.tools, Install: install})
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

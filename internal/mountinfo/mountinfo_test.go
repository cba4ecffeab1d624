package mountinfo_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, line string
		want       mountinfo.Mount
		ok         bool
	}{
		{
			"plain", "36 35 98:0 /sub /mnt rw,noatime master:1 - ext4 /dev/root rw,errors=continue\n",
			mountinfo.Mount{
				Device: "98:0", Root: "/sub", Point: "/mnt", Options: []string{"rw", "noatime"},
				Type: "ext4", Source: "/dev/root", Super: []string{"rw", "errors=continue"},
			},
			true,
		},
		{
			"escaped", `36 35 8:1 /a\040b /x\134y\011z rw - fuse.a /dev/c\012d rw`,
			mountinfo.Mount{
				Device: "8:1", Root: "/a b", Point: "/x\\y\tz", Options: []string{"rw"},
				Type: "fuse.a", Source: "/dev/c\nd", Super: []string{"rw"},
			},
			true,
		},
		{
			"no-escape", `36 35 8:1 / /a\9 ro shared:1 master:2 - tmpfs b\999 ro`,
			mountinfo.Mount{
				Device: "8:1", Root: "/", Point: `/a\9`, Options: []string{"ro"},
				Type: "tmpfs", Source: `b\999`, Super: []string{"ro"},
			},
			true,
		},
		{
			"source-without-a-name", "36 35 0:50 / /mnt rw - tmpfs  rw,size=4k",
			mountinfo.Mount{
				Device: "0:50", Root: "/", Point: "/mnt", Options: []string{"rw"},
				Type: "tmpfs", Super: []string{"rw", "size=4k"},
			},
			true,
		},
		{"empty", "", mountinfo.Mount{}, false},
		{"garbage", "garbage\n", mountinfo.Mount{}, false},
		{"without-options", "36 35 8:1 / /mnt - ext4 /dev/sda rw", mountinfo.Mount{}, false},
		{"without-a-dash", "36 35 8:1 / /mnt rw ext4 /dev/sda rw", mountinfo.Mount{}, false},
		{"cut-off", "36 35 8:1 / /mnt rw - ext4 /dev/sda", mountinfo.Mount{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := mountinfo.Parse(tt.line)
			if ok != tt.ok {
				t.Errorf("ok = %v, want %v", ok, tt.ok)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Each line of this machine's is one.
func TestParseOwn(t *testing.T) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if m, ok := mountinfo.Parse(line); !ok || !strings.HasPrefix(m.Point, "/") {
			t.Errorf("%q: %+v, %v", line, m, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`36 35 8:1 /a\040b /x\134 rw - ext4 /dev/sda rw`)
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := mountinfo.Parse(line); ok && (len(m.Options) == 0 || len(m.Super) == 0) {
			t.Errorf("%q: %+v", line, m)
		}
	})
}

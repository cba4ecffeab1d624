package arch

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oneWay are things that the host's packages do in one place, and the files that do
// them all the same.
var oneWay = []struct {
	name    string
	words   []string // of which one is in whatever has the pattern
	pattern *regexp.Regexp
	place   string
	others  map[string]string // why
}{
	{
		name:    "write a durable record",
		words:   []string{".Sync()", "unix.Fsync(", "unix.Fdatasync(", "unix.Syncfs("},
		pattern: regexp.MustCompile(`\.Sync\(\)|unix\.F(data)?sync\(|unix\.Syncfs\(`),
		place:   "internal/durable",
		others: map[string]string{
			"internal/backend/instance/saverole.go": "a file system of layers",
			"internal/image/layers.go":              "a file system of layers",
			"internal/guest/host.go":                "a guest's, before it is stopped",
			"internal/backend/disk/grow.go":         "an image, in place",
			"internal/disk/scrub/work.go":           "an image, whose copy is found by its name after a kill",
			"internal/volume/record.go":             "an image, in a directory that is yet to get its name",
			"internal/volume/content/change.go":     "a user's files in a volume, under a filter",
			"internal/volume/origin/roles.go":       "a volume's own file system, before it is unmounted",
			"internal/quarantine/keep.go":           "a pack, in the user's repository",
			"internal/workspace/stage.go":           "a user's files, all at once",
			"internal/workspace/commit.go":          "a user's directories",
			"internal/workspace/whole.go":           "a sandbox's own disk, before what it has a copy of is deleted",
			"internal/store/seal.go":                "a file that is locked in place",
		},
	},
	{
		name:    "execute this binary again",
		words:   []string{`"/proc/self/exe"`},
		pattern: regexp.MustCompile(`"/proc/self/exe"`),
		place:   "internal/role",
		others: map[string]string{
			"internal/backend/gvisor/boot/sidecars.go":     "by that name gVisor executes itself",
			"internal/backend/gvisor/umounter/umounter.go": "by that name gVisor executes itself",
			"internal/guest/jail/program.go":               "it is looked at, so that nobody executes it",
			"internal/guest/mcpgateway/main.go":            "another program, inside",
		},
	},
	{
		name:    "change what a thread may",
		words:   []string{"Setfs", "SETFS", "SETRES", "Setres", "SETGROUPS", "Setgroups(", "Capset(", "CAPSET", "Setuid(", "Setgid("},
		pattern: regexp.MustCompile(`Setfs[ug]id|SYS_SETFS[UG]ID|SYS_SETRES[UG]ID|\bSetres[ug]id\(|SYS_SETGROUPS|\bSetgroups\(|\bCapset\(|SYS_CAPSET|\bSet[ug]id\(`),
		place:   "internal/rights",
		others: map[string]string{
			"internal/backend/gvisor/boot/launch.go": "it gives its groups up, and fails where that does",
			"internal/role/ids.go":                   "a role gives its groups up, and fails where that does",
			"internal/backend/seccomp/ordinary.go":   "a list of what programs may call",

			"internal/backend/gvisor/filters/register_unsafe.go": "a list of what gofers may call",
			"internal/doctor/attempt.go":                         "whether ids can be had is what it tries",
			"internal/guest/jail/birth_unsafe.go":                "between fork and exec there is nothing but system calls, which fail",
		},
	},
	{
		name:    "speak to the guest agent",
		words:   []string{`"http://guest`, "guestv1connect.New", " /carboy/", `"/carboy/`},
		pattern: regexp.MustCompile(`"http://guest|guestv1connect\.New\w+Client\(|(GET|POST|DELETE) /carboy/\w+ HTTP/|"/carboy/(hold|sync|claim|suspend|probe|packages)`),
		place:   "internal/agent",
		others: map[string]string{
			"internal/backend/backendtest/instance.go": "a test of walls, from the agent's services up",
			"internal/backend/backendtest/files.go":    "a test of walls, from the agent's services up",
			"internal/guest/hold.go":                   "the agent itself: what it answers while commands are held",
		},
	},
}

// TestOneWay: what is done in one place is done in no other without a reason.
func TestOneWay(t *testing.T) {
	files := handWritten(t)
	for _, w := range oneWay {
		used := map[string]bool{}
		for _, f := range files {
			if elsewhere(f.path, string(f.text), w.words, w.pattern, w.place) {
				used[f.path] = true
			}
		}
		for _, p := range slices.Sorted(maps.Keys(used)) {
			if w.others[p] == "" {
				t.Errorf("%s: to %s is for %s; or say here why not", p, w.name, w.place)
			}
		}
		for p := range w.others {
			if !used[p] {
				t.Errorf("%s does not %s (any more): take it off the list", p, w.name)
			}
		}
	}
}

func elsewhere(path, text string, words []string, pattern *regexp.Regexp, place string) bool {
	ours := within(path, "internal") || within(path, "cmd") || within(path, "client")
	return ours && !strings.HasSuffix(path, "_test.go") && !within(path, place) && has(text, words) && pattern.MatchString(text)
}

func TestOneWayRefuses(t *testing.T) {
	for i, tt := range []struct {
		path, text string
		way        int
		want       bool
	}{
		{"internal/x/x.go", "err = f.Sync()", 0, true},
		{"internal/x/x.go", "unix.Fsync(fd)", 0, true},
		{"internal/x/x.go", "unix.Fdatasync(fd)", 0, true},
		{"internal/x/x.go", "unix.Syncfs(fd)", 0, true},
		{"internal/x/x.go", "d.Synced()", 0, false},
		{"internal/durable/durable.go", "err = f.Sync()", 0, false},
		{"internal/x/x_test.go", "err = f.Sync()", 0, false},
		{"internal/x/x.go", `exec.Command("/proc/self/exe")`, 1, true},
		{"cmd/x/x.go", `exec.Command("/proc/self/exe")`, 1, true},
		{"internal/role/start.go", `exec.Command("/proc/self/exe")`, 1, false},
		{"internal/x/x.go", "unix.Setfsuid(7)", 2, true},
		{"internal/x/x.go", "unix.RawSyscall(unix.SYS_SETRESUID, 7, 7, 7)", 2, true},
		{"internal/x/x.go", "syscall.Setgroups(nil)", 2, true},
		{"internal/x/x.go", "unix.Capset(&h, &d)", 2, true},
		{"internal/x/x.go", "rights.OfFiles(7, 7)", 2, false},
		{"internal/rights/rights_unsafe.go", "unix.Capset(&h, &d)", 2, false},
		{"internal/x/x.go", `http.NewRequest("GET", "http://guest/health", nil)`, 3, true},
		{"client/x.go", `guestv1connect.NewExecServiceClient(c, url)`, 3, true},
		{"internal/x/x.go", `"POST /carboy/hold HTTP/1.1\r\n"`, 3, true},
		{"internal/x/x.go", `h.ask(ctx, "/carboy/sync")`, 3, true},
		{"internal/x/x.go", `"/carboy/archive"`, 3, false}, // a path of the daemon's, too
		{"internal/agent/control.go", `g.ask(ctx, "/carboy/sync")`, 3, false},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := oneWay[tt.way]
			if got := elsewhere(tt.path, tt.text, w.words, w.pattern, w.place); got != tt.want {
				t.Errorf("%s with %q: %v, want %v", tt.path, tt.text, got, tt.want)
			}
		})
	}
}

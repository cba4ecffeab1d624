package doctor

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// hidden is a text that no bug report may hold, and what stands for it.
type hidden struct {
	Text string `json:"text"`
	With string `json:"with"`
	Word bool   `json:"word,omitempty"` // only where it stands alone: a name, not a path
}

// BugReport is the report as it can be shown to anyone: without details, and
// with every name and every path that is private replaced.
func (r Report) BugReport() string {
	var b strings.Builder
	// What is found is cleaned, and our own words are not: a machine may be
	// called like one of them.
	clean := func(s string) string { return hide(strings.Join(strings.Fields(s), " "), r.private) }
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "           %s: %s\n", name, clean(value))
		}
	}
	fmt.Fprintf(&b, "carboy %s\nkernel %s, %s, %s\n", r.Version, clean(r.Kernel), r.Arch, clean(r.OS))
	who := "an ordinary user"
	if r.Root {
		who = "root"
	}
	fmt.Fprintf(&b, "run by %s\n\nwalls\n", who)
	for _, name := range r.WallNames() {
		v := r.Walls[name]
		fmt.Fprintf(&b, "  %-8s %s", v.State, name)
		if name == r.Default {
			b.WriteString(" (the default)")
		}
		if v.Millis > 0 {
			fmt.Fprintf(&b, ", %d ms", v.Millis)
		}
		b.WriteByte('\n')
		field("error", v.Error)
		for _, w := range v.Weaker {
			field(w.Promise, w.Reason)
		}
		for _, k := range v.Keeps {
			if k.Enforced {
				field("keeps "+k.Promise, k.Mechanism)
			}
		}
	}
	area := ""
	for _, l := range r.Lines {
		if l.Area != area {
			area = l.Area
			fmt.Fprintf(&b, "\n%s\n", area)
		}
		fmt.Fprintf(&b, "  %-8s %s: %s\n", l.State, l.ID, clean(l.Found))
	}
	b.WriteString("\nfacts\n")
	for _, f := range r.Facts {
		fmt.Fprintf(&b, "  %s: %s\n", f.Name, clean(f.Value))
	}
	return b.String()
}

// WallNames lists the walls that were tried, the default one first.
func (r Report) WallNames() []string {
	var names []string
	for name := range r.Walls {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if (a == r.Default) != (b == r.Default) {
			if a == r.Default {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

// homes are directories of any users.
var homes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`/(?:home|Users|var/home|export/home)/[^/\s:,;'")]+`) })

// systems are directories that every machine has.
var systems = []string{"/", "/var", "/var/lib", "/var/cache", "/run", "/run/user", "/etc", "/tmp", "/var/tmp", "/srv", "/opt", "/mnt", "/home", "/usr"}

// privateNames are what this process knows to be private.
func privateNames(o Options) []hidden {
	var out []hidden
	path := func(p, with string) {
		for _, p := range []string{p, resolved(p)} {
			if p = filepath.Clean(p); filepath.IsAbs(p) && p != "/" {
				out = append(out, hidden{p, with, false})
			}
		}
	}
	name := func(n, with string) {
		if len(n) > 0 && n != "root" && n != "localhost" {
			out = append(out, hidden{n, with, true})
		}
	}
	path(o.Home, "~")
	path(os.Getenv("HOME"), "~")
	for _, d := range []struct{ dir, with string }{
		{o.Dirs.State, "STATE"},
		{o.Dirs.Cache, "CACHE"},
		{o.Dirs.Config, "CONFIG"},
		{o.Dirs.Run, "RUN"},
		{filepath.Join(os.TempDir(), "x"), "TMP"},
	} {
		path(d.dir, d.with)
		// Of what is above them an error may speak too.
		for at := filepath.Dir(d.dir); !slices.Contains(systems, at) && filepath.IsAbs(at); at = filepath.Dir(at) {
			path(at, "ABOVE-"+d.with)
		}
	}
	for _, uid := range []int{os.Getuid(), os.Geteuid()} {
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			path(u.HomeDir, "~")
			name(u.Username, "USER")
			for full := range strings.SplitSeq(u.Name, ",") {
				name(strings.TrimSpace(full), "USER")
			}
		}
	}
	for _, v := range []string{"USER", "LOGNAME", "SUDO_USER", "DOAS_USER"} {
		name(os.Getenv(v), "USER")
	}
	if h, err := os.Hostname(); err == nil {
		name(h, "HOST")
		short, _, _ := strings.Cut(h, ".")
		name(short, "HOST")
	}
	return out
}

func resolved(p string) string {
	if r, err := filepath.EvalSymlinks(p); err == nil {
		return r
	}
	return p
}

// hide replaces what is private in text, the longest first.
func hide(text string, private []hidden) string {
	private = slices.Clone(private)
	slices.SortStableFunc(private, func(a, b hidden) int { return len(b.Text) - len(a.Text) })
	for _, h := range private {
		if !h.Word {
			text = strings.ReplaceAll(text, h.Text, h.With)
			continue
		}
		text = replaceWord(text, h.Text, h.With)
	}
	return homes().ReplaceAllString(text, "~")
}

// replaceWord replaces word where no letter or digit stands beside it, in
// whatever case.
func replaceWord(text, word, with string) string {
	re := regexp.MustCompile(`(?i)(^|[^\pL\pN])` + regexp.QuoteMeta(word) + `($|[^\pL\pN])`)
	for range 2 { // two that share what is between them
		text = re.ReplaceAllString(text, "${1}"+with+"${2}")
	}
	return text
}

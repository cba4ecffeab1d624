package hostimage

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Bounds of what is read of apt's sources.
const (
	maxAptFiles   = 64
	maxAptSources = 64 // lines that are written
)

// aptSources are where the distribution's own packages come from on this machine, as
// sources.list has them: "" where there are none.
func (h *host) aptSources() (string, error) {
	release, _ := h.readText("usr/lib/os-release") // without it no source is the release's
	codename := ""
	for line := range strings.Lines(release) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			codename = strings.Trim(v, `"'`)
		}
	}
	files, err := h.aptFiles()
	if err != nil {
		return "", err
	}
	var lines []string
	for _, file := range files {
		text, err := h.readText(file)
		if err != nil {
			h.note(file, "left out: %v", err)
			continue
		}
		lines = append(lines, aptLines(text, strings.HasSuffix(file, ".sources"), codename)...)
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if len(lines) == 0 {
		return "", nil
	}
	return "# Of this machine's, what is the distribution's own.\n" + strings.Join(lines[:min(len(lines), maxAptSources)], ""), nil
}

// aptFiles lists the files that have sources, those that every user may read.
func (h *host) aptFiles() (files []string, err error) {
	candidates := []string{"etc/apt/sources.list"}
	dir, err := h.open("etc/apt/sources.list.d", unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case err == nil:
		names, err := dir.Readdirnames(maxAptFiles)
		dir.Close()
		if err != nil && len(names) == 0 && !errors.Is(err, io.EOF) {
			return nil, err
		}
		slices.Sort(names)
		for _, name := range names {
			if ext := path.Ext(name); ext == ".list" || ext == ".sources" {
				candidates = append(candidates, "etc/apt/sources.list.d/"+name)
			}
		}
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EACCES):
		return nil, err
	}
	for _, name := range candidates {
		var st unix.Stat_t
		f, err := h.open(name, unix.O_PATH)
		if err != nil {
			continue
		}
		err = unix.Fstat(int(f.Fd()), &st)
		f.Close()
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o004 != 0 {
			files = append(files, name)
		}
	}
	return files, nil
}

// aptEntry is one source: for each URI and suite, a line.
type aptEntry struct {
	types, uris, suites, components []string
	signed                          string
	off                             bool
}

// aptLines reads a file of sources, in either of apt's formats, and returns those that are
// the distribution's own. That is a suite of its release with the component main, by http or
// https, from a host that is asked without a password.
func aptLines(text string, deb822 bool, codename string) (lines []string) {
	read := oneLine
	if deb822 {
		read = paragraphs
	}
	for _, e := range read(text) {
		if e.off || codename == "" || !slices.Contains(e.types, "deb") || !slices.Contains(e.components, "main") {
			continue
		}
		if !aptWords(slices.Concat(e.suites, e.components)) {
			continue
		}
		for _, uri := range e.uris {
			for _, suite := range e.suites {
				if aptURI(uri) && ofRelease(suite, codename) {
					lines = append(lines, "deb "+aptSigned(e.signed)+uri+" "+suite+" "+strings.Join(e.components, " ")+"\n")
				}
			}
		}
	}
	return lines
}

// oneLine reads sources.list: "deb [option=value ...] URI suite component...".
func oneLine(text string) (list []aptEntry) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
		e := aptEntry{types: []string{kind}}
		rest = strings.TrimSpace(rest)
		if options, after, ok := strings.Cut(strings.TrimPrefix(rest, "["), "]"); ok && strings.HasPrefix(rest, "[") {
			rest = after
			for _, o := range strings.Fields(options) {
				if v, ok := strings.CutPrefix(o, "signed-by="); ok {
					e.signed = v
				}
			}
		}
		if words := strings.Fields(rest); len(words) >= 3 {
			e.uris, e.suites, e.components = words[:1], words[1:2], words[2:]
			list = append(list, e)
		}
	}
	return list
}

// paragraphs reads NAME.sources: fields, whose values go on in lines that begin with a blank.
func paragraphs(text string) (list []aptEntry) {
	for text != "" {
		fields, name := map[string]string{}, ""
		for text != "" {
			var line string
			line, text, _ = strings.Cut(text, "\n")
			switch {
			case strings.TrimSpace(line) == "":
				line = ""
			case strings.HasPrefix(line, "#"):
				continue
			case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
				fields[name] += " " + strings.TrimSpace(line)
				continue
			}
			if line == "" {
				break
			}
			key, value, _ := strings.Cut(line, ":")
			name = strings.ToLower(strings.TrimSpace(key))
			fields[name] = strings.TrimSpace(value)
		}
		words := func(name string) []string { return strings.Fields(fields[name]) }
		list = append(list, aptEntry{
			types: words("types"), uris: words("uris"), suites: words("suites"), components: words("components"),
			signed: fields["signed-by"], off: slices.Contains([]string{"no", "false", "0", "off", "without", "disable"}, strings.ToLower(fields["enabled"])),
		})
	}
	return list
}

var aptWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9.+_-]*\z`) })

func aptWords(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return len(w) > 64 || !aptWord().MatchString(w) })
}

// ofRelease reports whether a suite is the release's, or one that adds to it, such as
// bookworm-updates.
func ofRelease(suite, codename string) bool {
	return suite == codename || strings.HasPrefix(suite, codename+"-")
}

func aptURI(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		len(text) < 256 && !strings.ContainsAny(text, "[]@")
}

// aptSigned is the option that names a key of /usr, which is there inside. Of another key,
// such as one that is written out, apt is told nothing: it trusts the distribution's.
func aptSigned(keys string) string {
	const dir = "/usr/share/keyrings/"
	name, ok := strings.CutPrefix(keys, dir)
	if !ok || !aptWords([]string{cmp.Or(name, "/")}) {
		return ""
	}
	return "[signed-by=" + dir + name + "] "
}

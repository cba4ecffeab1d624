package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"
	modzip "golang.org/x/mod/zip"
)

// gitSites are a forge with one repository, o/r, that takes pushes too, and as
// o/private is for those who have the token; and the place where its archives
// are.
func gitSites(t *testing.T) (forge, archives http.Handler) {
	t.Helper()
	root := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	work, bare := filepath.Join(root, "work"), filepath.Join(root, "o", "r.git")
	git("init", "-q", "-b", "main", work)
	if err := os.WriteFile(work+"/README", []byte("trusted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(work+"/large", noise(3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	git("-C", work, "add", ".")
	git("-C", work, "commit", "-q", "-m", "first")
	git("clone", "-q", "--bare", work, bare)
	for _, name := range []string{"r", "private"} {
		if err := os.Symlink("r.git", filepath.Join(root, "o", name)); err != nil {
			t.Fatal(err)
		}
	}
	git("-C", bare, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: git("--exec-path") + "/git-http-backend", Root: "/",
		Env:        []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		InheritEnv: []string{"PATH"}, Stderr: io.Discard,
	}
	mux := http.NewServeMux()
	mux.Handle("/", backend)
	mux.HandleFunc("/o/private/", func(rw http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != realToken {
			rw.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(rw, r)
	})
	mux.Handle("/o/r/archive/", http.RedirectHandler("https://codeload.github.com/o/r/tar.gz/main", http.StatusFound))
	archives = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		cmd := exec.Command("git", "-C", bare, "archive", "--format=tar.gz", "--prefix=r-main/", "main", "README")
		cmd.Stdout = rw
		_ = cmd.Run()
	})
	return mux, archives
}

// noise are bytes that don't pack, the same for the same length.
func noise(n int) []byte {
	var out []byte
	for i := 0; len(out) < n; i++ {
		sum := sha256.Sum256(fmt.Append(nil, n, i))
		out = append(out, sum[:]...)
	}
	return out[:n]
}

// pythonSites are an index and the place of its files: a wheel that needs
// another one.
func pythonSites() (index, files http.Handler) {
	wheels := map[string][]byte{
		"carboy_first-1.0-py3-none-any.whl":  wheel("carboy_first", "Requires-Dist: carboy-second>=1\n"),
		"carboy_second-1.1-py3-none-any.whl": wheel("carboy_second", ""),
	}
	index = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		project, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/simple/")
		if !ok {
			http.NotFound(rw, r)
			return
		}
		indexPage(rw, r, project, wheels)
	})
	files = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		if data, ok := wheels[strings.TrimSuffix(name, ".metadata")]; ok && name != "" {
			if strings.HasSuffix(name, ".metadata") {
				data = metadataOf(data)
			}
			rw.Header().Set("Content-Type", "application/octet-stream")
			http.ServeContent(rw, r, name, time.Time{}, bytes.NewReader(data))
			return
		}
		http.NotFound(rw, r)
	})
	return index, files
}

// indexPage is a project's page, packed, as JSON or HTML by what the client takes.
func indexPage(rw http.ResponseWriter, r *http.Request, project string, wheels map[string][]byte) {
	type file struct {
		Filename string            `json:"filename"`
		URL      string            `json:"url"`
		Hashes   map[string]string `json:"hashes"`
		Metadata bool              `json:"core-metadata"`
	}
	list := []file{}
	html := "<!DOCTYPE html><html><body>\n"
	for name, data := range wheels {
		if !strings.HasPrefix(name, strings.ReplaceAll(project, "-", "_")+"-") {
			continue
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		url := "https://" + pypiFiles + "/packages/aa/bb/" + name
		// The first one comes with its metadata apart, the second one without.
		apart := project == "carboy-first"
		list = append(list, file{name, url, map[string]string{"sha256": sum}, apart})
		html += fmt.Sprintf("<a href=%q data-core-metadata=\"%v\">%s</a>\n", url+"#sha256="+sum, apart, name)
	}
	body := []byte(html + "</body></html>")
	rw.Header().Set("Content-Type", "text/html")
	if strings.Contains(r.Header.Get("Accept"), "application/vnd.pypi.simple.v1+json") {
		rw.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		body, _ = json.Marshal(map[string]any{"meta": map[string]string{"api-version": "1.1"}, "name": project, "files": list})
	}
	packed(rw, r, body)
}

// packed sends an answer with gzip where the client takes it.
func packed(rw http.ResponseWriter, r *http.Request, body []byte) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = rw.Write(body)
		return
	}
	rw.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(rw)
	_, _ = z.Write(body)
	_ = z.Close()
}

// wheel is a package of Python's with one module and some weight.
func wheel(name, more string) []byte {
	version := map[string]string{"carboy_first": "1.0", "carboy_second": "1.1"}[name]
	info := name + "-" + version + ".dist-info/"
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, f := range []struct{ name, text string }{
		{name + ".py", "word = 'trusted'\n"},
		{name + ".bin", string(noise(1 << 20))},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + strings.ReplaceAll(name, "_", "-") + "\nVersion: " + version + "\n" + more},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", ""},
	} {
		entry, _ := z.Create(f.name)
		_, _ = io.WriteString(entry, f.text)
	}
	_ = z.Close()
	return out.Bytes()
}

func metadataOf(wheel []byte) []byte {
	z, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		return nil
	}
	for _, f := range z.File {
		if r, err := f.Open(); err == nil && strings.HasSuffix(f.Name, "/METADATA") {
			data, _ := io.ReadAll(r)
			return data
		}
	}
	return nil
}

// nodeSite is a registry with two packages, one of which needs the other; it
// takes what is published, and answers an audit.
func nodeSite() http.Handler {
	mux := http.NewServeMux()
	for name, other := range map[string]string{"carboy-first": "carboy-second", "carboy-second": ""} {
		manifest := map[string]any{"name": name, "version": "1.0.0", "main": "index.js"}
		if other != "" {
			manifest["dependencies"] = map[string]string{other: "^1.0.0"}
		}
		nodePublished(mux, manifest, map[string]string{"index.js": "module.exports = 'trusted'\n", "weight.bin": string(noise(1 << 20))})
	}
	mux.HandleFunc("POST /-/npm/v1/security/advisories/bulk", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "{}")
	})
	mux.HandleFunc("PUT /{name}", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(rw, `{"ok":true}`)
	})
	return mux
}

// nodePublished serves version 1.0.0 of a package as a registry does.
func nodePublished(mux *http.ServeMux, manifest map[string]any, files map[string]string) {
	raw, _ := json.Marshal(manifest)
	files["package.json"] = string(raw)
	tarball := nodePackage(files)
	sum := sha512.Sum512(tarball)
	name := manifest["name"].(string)
	file := name + "-1.0.0.tgz"
	manifest["dist"] = map[string]string{
		"tarball":   "https://" + npmRegistry + "/" + name + "/-/" + file,
		"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
	}
	doc, _ := json.Marshal(map[string]any{
		"name": name, "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": manifest},
	})
	mux.HandleFunc("GET /"+name, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		packed(rw, r, doc)
	})
	mux.HandleFunc("GET /"+name+"/-/"+file, func(rw http.ResponseWriter, r *http.Request) {
		http.ServeContent(rw, r, file, time.Time{}, bytes.NewReader(tarball))
	})
}

func nodePackage(files map[string]string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	for name, text := range files {
		_ = t.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text))})
		_, _ = io.WriteString(t, text)
	}
	_ = t.Close()
	_ = z.Close()
	return out.Bytes()
}

// goModule is the one that goSites have.
var goModule = module.Version{Path: "example.com/carboy/hello", Version: "v1.0.0"}

// goSites are a module proxy and a checksum database with one module. The
// database signs with a key of its own, of which this returns the public one.
func goSites(t *testing.T) (proxy, sums http.Handler, key string) {
	t.Helper()
	src := t.TempDir()
	text := "module " + goModule.Path + "\n\ngo 1.20\n"
	for name, text := range map[string]string{"go.mod": text, "hello.go": "// Package hello is trusted.\npackage hello\n"} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var archive bytes.Buffer
	if err := modzip.CreateFromDir(&archive, goModule, src); err != nil {
		t.Fatal(err)
	}
	base := "/" + goModule.Path + "/@v/"
	files := map[string]string{
		base + "list":        goModule.Version + "\n",
		base + "v1.0.0.info": `{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`,
		base + "v1.0.0.mod":  text,
		base + "v1.0.0.zip":  archive.String(),
	}
	proxy = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if data, ok := files[r.URL.Path]; ok {
			_, _ = io.WriteString(rw, data)
			return
		}
		http.NotFound(rw, r)
	})
	secret, public, err := note.GenerateKey(nil, goSums)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hello.zip")
	if err := os.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	whole, err := dirhash.HashZip(path, dirhash.DefaultHash)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sums = sumdb.NewServer(sumdb.NewTestServer(secret, func(path, version string) ([]byte, error) {
		if path != goModule.Path || version != goModule.Version {
			return nil, os.ErrNotExist
		}
		return fmt.Appendf(nil, "%s %s %s\n%s %s/go.mod %s\n", path, version, whole, path, version, mod), nil
	}))
	return proxy, sums, public
}

// debianSite is an archive with one package.
func debianSite(t *testing.T) http.Handler {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return http.NotFoundHandler() // nor will anybody ask
	}
	data, err := os.ReadFile(buildPackage(t))
	if err != nil {
		t.Fatal(err)
	}
	list := fmt.Appendf(nil, "Package: carboy-hello\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\n"+
		"Description: says hello\nFilename: pool/hello.deb\nSize: %d\nSHA256: %x\n\n", len(data), sha256.Sum256(data))
	release := fmt.Appendf(nil, "Suite: stable\nCodename: stable\nComponents: main\nArchitectures: all %s\nDate: %s\nSHA256:\n", runtime.GOARCH,
		time.Now().Add(-time.Minute).UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"))
	files := map[string][]byte{"/debian/pool/hello.deb": data}
	for _, arch := range []string{"all", runtime.GOARCH} {
		name := "main/binary-" + arch + "/Packages"
		files["/debian/dists/stable/"+name] = list
		release = fmt.Appendf(release, " %x %d %s\n", sha256.Sum256(list), len(list), name)
	}
	files["/debian/dists/stable/Release"] = release
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if data, ok := files[r.URL.Path]; ok {
			http.ServeContent(rw, r, r.URL.Path, time.Now().Add(-time.Hour), bytes.NewReader(data))
			return
		}
		http.NotFound(rw, r)
	})
}

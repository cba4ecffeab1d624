// Package trust connects a sandbox's files with its gate: which resolver its
// programs ask, and that they trust the certificates that the gate makes.
//
// The certificate of the sandbox's own authority is put where programs look:
// among the ones that an administrator adds, in the system's bundles, under
// its hash for OpenSSL's directories, in Java's stores, and in what the
// commands' environment names. Nothing is executed for that. What distributions
// have to rebuild those files finds the certificate where it takes others
// from, and keeps it.
//
// The image's files are hostile: sizes are bounded, and a link never leads a
// write out of the sandbox's own file system, into a directory that is shared
// with the host or what the agent hides from commands. A key is refused: what
// is not in the guest, nobody there can read. What can't be changed is left as
// it was and said in the error, and the rest is done.
package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"path"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"golang.org/x/sys/unix"
)

// alias is what the certificate is called in files and stores.
const alias = "carboy"

// Where the certificate goes by itself: into a file of the agent's own, which the
// environment names and every wall can write, and to what distributions take
// additional authorities from. Of those the first is made where it is missing.
const (
	ownFile     = "/etc/carboy/ca.crt"
	certFile    = "/usr/local/share/ca-certificates/carboy.crt" // Debian, Alpine
	debian      = "/etc/ssl/certs/ca-certificates.crt"
	debianStore = "/etc/ssl/certs/java/cacerts"
)

var anchors = []string{
	"/etc/pki/ca-trust/source/anchors",          // Fedora, Red Hat
	"/etc/pki/trust/anchors",                    // SUSE
	"/etc/ca-certificates/trust-source/anchors", // Arch
}

// bundles are the files with all that a system trusts. The first that there is
// is the one that the environment names.
var bundles = []string{
	debian,
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, Red Hat
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/tls/cert.pem",
	"/etc/ssl/ca-bundle.pem", // SUSE
	"/var/lib/ca-certificates/ca-bundle.pem",
	"/etc/ssl/certs/ca-bundle.crt", // Nix
	"/etc/ssl/cert.pem",            // Alpine
}

// Options say what to connect.
type Options struct {
	Root        string       // of the guest; empty: "/"
	Nameservers []netip.Addr // the gate's resolver
	Gate        string       // the gate's host name; empty: none
	Authority   []byte       // see control.CheckAuthority; empty: none is installed
	// Roots returns, in PEM, what an image without any authority is given
	// besides. nil: nothing.
	Roots func() ([]byte, error)
	// Env is what the commands' environment has already: a bundle or a Java
	// that it names is included.
	Env map[string]string
}

// installer is one Install.
type installer struct {
	*rootFS
	o    Options
	cert *x509.Certificate
	pem  []byte // the certificate
	old  []byte // another one that was here before, in PEM; or nil
	done map[string]bool
	main string // the bundle that the environment names
	base []byte // what it held
	errs []error
}

// Install connects the guest, and returns the variables that its commands need
// where they don't have them. What fails is in the error; the variables name
// nothing but what is there. Doing it again changes nothing, and with another
// authority the former one goes.
func Install(o Options) (map[string]string, error) {
	if o.Root == "" {
		o.Root = "/"
	}
	t, err := openRootFS(o.Root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	in := &installer{rootFS: t, o: o, done: map[string]bool{}}
	in.try("/etc/resolv.conf", in.resolver())
	in.try("/etc/hosts", in.hosts())
	if len(o.Authority) == 0 {
		return nil, errors.Join(in.errs...)
	}
	if in.cert, err = control.CheckAuthority(o.Authority); err != nil {
		return nil, errors.Join(append(in.errs, err)...)
	}
	in.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: in.cert.Raw})
	in.former()
	in.addBundles()
	in.addHashes()
	in.addStores()
	for _, dir := range anchors {
		if in.exists(dir) {
			in.try(dir, in.place(path.Join(dir, path.Base(certFile))))
		}
	}
	if err := in.place(certFile); err != nil && !notOurs(err) {
		in.try(certFile, err)
	}
	// The last one: until it is there, what was here before is still known.
	in.try(ownFile, in.place(ownFile))
	return in.environment(), errors.Join(in.errs...)
}

// try notes what went wrong with a file.
func (in *installer) try(name string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, unix.EXDEV):
		in.errs = append(in.errs, fmt.Errorf("%s: left alone: it leads out of the sandbox's own files", name))
	default:
		in.errs = append(in.errs, fmt.Errorf("%s: left alone: %w", name, err))
	}
}

// notOurs reports whether a directory can't be written because it is the host's:
// without root its owner is nobody inside. Programs read other files than the one
// that is missing there, so nothing is amiss.
func notOurs(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EOVERFLOW)
}

// former finds the certificate that an earlier start installed.
func (in *installer) former() {
	f, err := in.read(ownFile)
	if err != nil { // as of a snapshot of before there was one
		f, err = in.read(certFile)
	}
	if err != nil || bytes.Equal(f.data, in.pem) {
		return
	}
	if cert, err := control.CheckAuthority(f.data); err == nil {
		in.old = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
}

// place writes the certificate by itself.
func (in *installer) place(name string) error {
	if f, err := in.read(name); err == nil && bytes.Equal(f.data, in.pem) {
		return nil
	}
	return in.write(name, ordinary(in.pem))
}

// edit has change see to what p leads to, once however many names lead there.
// It is not an error that there is nothing.
func (in *installer) edit(p string, change func([]byte) ([]byte, error)) (there bool) {
	name, err := in.final(p)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false
	}
	if err != nil || in.done[name] {
		in.try(p, err)
		return err == nil
	}
	in.done[name] = true
	f, err := in.read(name)
	if err == nil {
		var now []byte
		if now, err = change(f.data); err == nil && !bytes.Equal(now, f.data) {
			err = in.write(name, file{data: now, mode: f.mode, uid: f.uid, gid: f.gid})
		}
	}
	in.try(p, err)
	return err == nil
}

// addBundles appends the certificate to each bundle, and makes one where there
// is none.
func (in *installer) addBundles() {
	for _, p := range bundles {
		if in.edit(p, in.bundled) && in.main == "" {
			in.main = p
		}
	}
	if _, err := in.final(debian); in.main == "" && errors.Is(err, unix.ENOENT) {
		data, _ := in.bundled(in.roots())
		err := in.write(debian, ordinary(data))
		if in.try(debian, err); err == nil {
			in.main = debian
		}
	}
	for _, name := range bundleVariables {
		if p := in.o.Env[name]; path.IsAbs(p) {
			in.edit(p, in.bundled)
		}
	}
}

// bundled is a bundle with the certificate, and without the former one.
func (in *installer) bundled(data []byte) ([]byte, error) {
	if in.old != nil {
		data = bytes.ReplaceAll(data, in.old, nil)
	}
	if in.base == nil {
		in.base = data
	}
	if holds(data, in.pem) {
		return data, nil
	}
	out := data
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return append(out, in.pem...), nil
}

// holds is bytes.Contains for what begins like much else in data: it looks for
// a part from the middle, which is short and like nothing else.
func holds(data, text []byte) bool {
	const length = 48
	if len(text) < 2*length {
		return bytes.Contains(data, text)
	}
	middle := len(text) / 2
	for from := 0; ; {
		i := bytes.Index(data[from:], text[middle:middle+length])
		if i < 0 {
			return false
		}
		if from += i; from >= middle && bytes.HasPrefix(data[from-middle:], text) {
			return true
		}
		from++
	}
}

// roots is what an image without a bundle is given.
func (in *installer) roots() []byte {
	if in.o.Roots == nil {
		return nil
	}
	data, err := in.o.Roots()
	if err != nil {
		in.errs = append(in.errs, fmt.Errorf("read the authorities for an image without: %w", err))
	}
	return data
}

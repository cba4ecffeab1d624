package egress

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// rootFiles and rootDirs are where systems keep whom they trust: the first
// file that is there has them all, and else the first directory.
var (
	rootFiles = []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Arch, Gentoo
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL
		"/etc/ssl/cert.pem",                                 // Alpine
	}
	rootDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

// maxRoots bounds what is read of them, in bytes.
const maxRoots = 8 << 20

// readRoots reads whom this machine trusts, in PEM. Like other programs it
// minds SSL_CERT_FILE and SSL_CERT_DIR.
func readRoots() ([]byte, error) {
	files, dirs := rootFiles, rootDirs
	if f := os.Getenv("SSL_CERT_FILE"); f != "" {
		files = []string{f}
	}
	if d := os.Getenv("SSL_CERT_DIR"); d != "" {
		dirs = strings.Split(d, ":")
	}
	for _, f := range files {
		b, err := readBounded(f)
		if err == nil {
			return b, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	var all []byte
	for _, d := range dirs {
		entries, err := os.ReadDir(d)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if b, err := readBounded(filepath.Join(d, e.Name())); err == nil && len(all)+len(b) <= maxRoots {
				all = append(append(all, b...), '\n')
			}
		}
	}
	return all, nil
}

func readBounded(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxRoots {
		return nil, fs.ErrInvalid
	}
	return os.ReadFile(path)
}

// poolOf returns a function that parses roots when it is first called: that
// takes longer than all else that a gate does to start, and many never need
// it.
func poolOf(roots []byte) func() *x509.CertPool {
	return sync.OnceValue(func() *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(roots)
		return pool
	})
}

package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxPEM is the size of the largest file of a certificate or of its key.
const maxPEM = 1 << 20

// certificate is what a TCP address shows of itself. Its files are read
// again where they have changed, as they do each time it is renewed.
type certificate struct {
	section           string // of the configuration, "box." or none
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	cert   *tls.Certificate
	stamps [2]stamp // of the files as they were when they were read
	said   string   // of a read that failed; "": the last did not
}

// stamp tells one state of a file from another.
type stamp struct {
	time time.Time
	size int64
}

// openCertificate reads what a section of the configuration names; nil where it
// names nothing.
func openCertificate(section, cert, key string, log *slog.Logger) (*certificate, error) {
	if cert == "" {
		return nil, nil
	}
	c := &certificate{section: section, certFile: cert, keyFile: key, log: log}
	return c, c.read()
}

// boxCertificate is that of the dialect's address; nil where that is in clear.
func (d *daemon) boxCertificate() (*certificate, error) {
	b := d.cfg.Box
	if b.secure() {
		return openCertificate("box.", b.TLSCert, b.TLSKey, d.log)
	}
	if b.Listen != "" && b.TLSCert != "" {
		d.log.Warn("box.tls_cert is left alone: the host at standard input and output looks for the relay at ws://; --tls-cert has it speak TLS all the same",
			"listen", b.Listen)
	}
	return nil, nil
}

// read takes the files as they are now, and leaves c alone where they can't be
// used.
func (c *certificate) read() error {
	cert, certStamp, err := readPEM(c.certFile, false)
	if err != nil {
		return err
	}
	key, keyStamp, err := readPEM(c.keyFile, true)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		e := sandbox.Errorf(sandbox.Invalid, "%stls_cert %s and %[1]stls_key %s: no certificate with its key", c.section, c.certFile, c.keyFile).
			WithHint("both in PEM, the certificate of this server first in its file")
		e.Err = err
		return e
	}
	c.cert, c.stamps = &pair, [2]stamp{certStamp, keyStamp}
	return nil
}

// readPEM reads a file that, where it is secret, others may not read.
func readPEM(path string, secret bool) ([]byte, stamp, error) {
	f, err := home.OpenTrusted(path)
	if _, said := errors.AsType[*sandbox.Error](err); said {
		return nil, stamp{}, err
	}
	if err != nil {
		e := sandbox.Errorf(sandbox.Invalid, "%s can't be read: %v", path, errors.Unwrap(err))
		e.Err = err
		return nil, stamp{}, e
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, stamp{}, fmt.Errorf("stat %s: %w", path, err)
	}
	if secret && st.Mode().Perm()&0o007 != 0 {
		return nil, stamp{}, sandbox.Errorf(sandbox.Denied, "%s is open to other users", path).WithHint("chmod o= %s", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err != nil {
		return nil, stamp{}, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > maxPEM {
		return nil, stamp{}, sandbox.Errorf(sandbox.Invalid, "%s: larger than %d bytes", path, maxPEM)
	}
	return b, stampOf(st), nil
}

func stampOf(st fs.FileInfo) stamp { return stamp{st.ModTime(), st.Size()} }

// changed reports whether a file is not as it was.
func (c *certificate) changed() bool {
	for i, path := range []string{c.certFile, c.keyFile} {
		if st, err := home.Stat(path); err == nil && stampOf(st) != c.stamps[i] {
			return true
		}
	}
	return false
}

// current returns the certificate for a connection. One that can't be read is
// reported, and the last that could goes on.
func (c *certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed() {
		if err := c.read(); err == nil {
			c.said = ""
		} else if c.said != err.Error() { // not for each connection
			c.said = err.Error()
			c.log.Error("read the certificate anew", "error", err)
		}
	}
	return c.cert, nil
}

// serve serves l by TLS where c is not nil.
func (c *certificate) serve(srv *http.Server, l net.Listener) error {
	if c == nil || l.Addr().Network() != "tcp" {
		return srv.Serve(l)
	}
	srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.current}
	return srv.ServeTLS(l, "", "")
}

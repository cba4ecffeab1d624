package bottle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"

	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// trustAt is where the agent in a sandbox puts the gate's certificate by itself, and the
// variable that names the bundle which programs there use.
const (
	trustAt       = "/etc/carboy/ca.crt"
	trustVariable = "SSL_CERT_FILE"
	maxBundle     = 8 << 20
)

// readTrust writes the certificate, and the bundle that is in use, with a line of zeros before each.
const readTrust = `[ -n "$` + trustVariable + `" ] || { echo "no bundle is named: ` + trustVariable + ` is empty" >&2; exit 1; }
printf '\000\n' && cat -- "$1" && printf '\000\n' && cat -- "$` + trustVariable + `"`

// trusted sees that the certificate by which the gate answers is where programs look, and
// remembers which it is. The agent inside has put it there as it started, as root, once.
func (w *work) trusted(ctx context.Context) error {
	block, _ := pem.Decode([]byte(w.sb.Link.Trust))
	if block == nil || block.Type != "CERTIFICATE" {
		return sandbox.Errorf(sandbox.Internal, "the gate has no certificate, and nothing inside could trust it").WithHint(sandbox.LogHint)
	}
	sum := sha256.Sum256(block.Bytes)
	const text = "the gate's certificate is not in place inside"
	r, err := w.pr.Run(ctx, []string{"sh", "-c", readTrust, "sh", trustAt}, maxBundle)
	switch {
	case err != nil:
		return because(text, err)
	case r.Code != 0:
		return provider.Failed(text, r)
	}
	is := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes})
	parts := bytes.Split(r.Stdout, []byte("\x00\n"))
	switch {
	case len(parts) != 3 || !bytes.Contains(parts[1], bytes.TrimSpace(is)):
		return sandbox.Errorf(sandbox.Unavailable, "%s: %s has another", text, trustAt)
	case !bytes.Contains(parts[2], bytes.TrimSpace(is)):
		return sandbox.Errorf(sandbox.Unavailable, "%s: the bundle that programs use lacks it", text).
			WithHint("another image, or --isolation gvisor")
	}
	w.is.Authority = hex.EncodeToString(sum[:])
	w.said = "SHA-256 " + w.is.Authority
	return nil
}

package trust

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
)

// hashed are directories in which OpenSSL looks for one certificate by the
// hash of its name.
var hashed = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}

// addHashes links the certificate where OpenSSL looks it up, as Debian's tool
// does: under a name of its own, and under its hash.
func (in *installer) addHashes() {
	hash, err := subjectHash(in.cert.RawSubject)
	if err != nil {
		in.try(hashed[0], err)
		return
	}
	for i, p := range hashed {
		dir, err := in.final(p)
		if i > 0 && err != nil {
			continue
		}
		if err != nil {
			dir = p
		}
		if in.done[dir] {
			continue
		}
		in.done[dir] = true
		in.dropHash(dir)
		in.try(p, errors.Join(in.link(path.Join(dir, alias+".pem"), ownFile), in.addHash(dir, hash)))
	}
}

// maxHashes is how many certificates of one hash OpenSSL is thought to meet.
const maxHashes = 16

// addHash takes the first name of a hash that nothing else has.
func (in *installer) addHash(dir, hash string) error {
	for n := range maxHashes {
		name := path.Join(dir, fmt.Sprintf("%s.%d", hash, n))
		switch in.readLink(name) {
		case alias + ".pem":
			return nil
		case "":
			if in.there(name) {
				continue
			}
			return in.link(name, alias+".pem")
		}
	}
	return fmt.Errorf("%d certificates have the hash %s already", maxHashes, hash)
}

// dropHash removes the names of the former certificate.
func (in *installer) dropHash(dir string) {
	block, _ := pem.Decode(in.old)
	if block == nil {
		return
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return
	}
	hash, err := subjectHash(cert.RawSubject)
	if err != nil {
		return
	}
	for n := range maxHashes {
		name := path.Join(dir, fmt.Sprintf("%s.%d", hash, n))
		if in.readLink(name) == alias+".pem" {
			in.try(name, in.remove(name))
		}
	}
}

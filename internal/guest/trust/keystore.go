package trust

import (
	"bytes"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
)

// A store is an image's, and hostile. keystore-go allocates whatever length an
// entry claims, up to 4 GiB, before it reads on or knows the digest, and keeps
// entries in a map: without their order, and one for each alias.
//
// Java's own format of a store, JKS: a magic number, a version, the number of
// entries and the entries, then a digest that is keyed by the password.
// Strings have their length in two bytes before them.
const (
	jksMagic   = 0xfeedfeed
	jksVersion = 2
	jksHeader  = 12 // bytes
	jksCert    = "X.509"
	tagKey     = 1
	tagTrusted = 2
)

// storePassword is what Java takes for granted.
const storePassword = "changeit"

// maxEntries bounds a store: there are some 150 public authorities.
const maxEntries = 10_000

var errNoStore = errors.New("it is neither a JKS store with the password changeit nor a PKCS #12 store without one")

// entry is one of a store: its alias, and all its bytes.
type entry struct {
	alias string
	raw   []byte
}

// trusted is the entry of a certificate. Its date is that of 1970: a store is
// the same whenever it is made.
func trusted(alias string, der []byte) entry {
	raw := binary.BigEndian.AppendUint32(nil, tagTrusted)
	raw = appendText(raw, alias)
	raw = binary.BigEndian.AppendUint64(raw, 0)
	raw = appendText(raw, jksCert)
	raw = binary.BigEndian.AppendUint32(raw, uint32(len(der)))
	return entry{alias: alias, raw: append(raw, der...)}
}

// appendText is for plain ASCII alone, of less than 64 KiB.
func appendText(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(text))), text...)
}

// formatStore is the store with those entries.
func formatStore(entries []entry) []byte {
	size := jksHeader + sha1.Size
	for _, e := range entries {
		size += len(e.raw)
	}
	out := binary.BigEndian.AppendUint32(make([]byte, 0, size), jksMagic)
	out = binary.BigEndian.AppendUint32(out, jksVersion)
	out = binary.BigEndian.AppendUint32(out, uint32(len(entries)))
	for _, e := range entries {
		out = append(out, e.raw...)
	}
	return append(out, storeDigest(out)...)
}

func storeDigest(content []byte) []byte {
	h := sha1.New()
	var two [2]byte
	for _, u := range utf16.Encode([]rune(storePassword)) {
		binary.BigEndian.PutUint16(two[:], u)
		h.Write(two[:])
	}
	h.Write([]byte("Mighty Aphrodite")) // the format's own
	h.Write(content)
	return h.Sum(nil)
}

// parseStore reads a store whose digest is right.
func parseStore(data []byte) ([]entry, error) {
	if len(data) < jksHeader+sha1.Size || binary.BigEndian.Uint32(data) != jksMagic ||
		binary.BigEndian.Uint32(data[4:]) != jksVersion {
		return nil, errNoStore
	}
	content, digest := data[:len(data)-sha1.Size], data[len(data)-sha1.Size:]
	if subtle.ConstantTimeCompare(storeDigest(content), digest) != 1 {
		return nil, errNoStore
	}
	count := binary.BigEndian.Uint32(content[8:])
	if count > maxEntries {
		return nil, fmt.Errorf("%d entries are too many for a store", count)
	}
	r := &reader{rest: content[jksHeader:]}
	var entries []entry
	for range count {
		entries = append(entries, r.entry())
		if r.short {
			return nil, errors.New("the store ends within an entry")
		}
	}
	if len(r.rest) > 0 {
		return nil, errors.New("something follows the store's last entry")
	}
	return entries, nil
}

// reader takes a store apart. Once it has come to an end too early, it gives
// nothing more.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) number() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) text() string {
	b := r.take(2)
	if b == nil {
		return ""
	}
	return string(r.take(uint32(binary.BigEndian.Uint16(b))))
}

// entry reads one entry. Private keys, which a store may have too, are kept as
// they are.
func (r *reader) entry() entry {
	start := r.rest
	tag := r.number()
	e := entry{alias: r.text()}
	r.take(8) // the date
	certs := uint32(1)
	switch tag {
	case tagTrusted:
	case tagKey:
		r.take(r.number())
		certs = r.number()
	default:
		r.short = true
	}
	for range certs {
		if r.text(); r.short { // the certificate's type
			return entry{}
		}
		r.take(r.number())
	}
	if r.short {
		return entry{}
	}
	e.raw = start[:len(start)-len(r.rest)]
	return e
}

// withAuthority returns a Java store in which der is, under our alias, and
// what the store had. One that has it already comes back as it is.
func withAuthority(data, der []byte) ([]byte, error) {
	entries, err := parseStore(data)
	if errors.Is(err, errNoStore) && isPKCS12(data) {
		var certs [][]byte
		if certs, err = pkcs12Certificates(data); err == nil {
			entries = trustedAll(certs)
			data = nil
		}
	}
	if err != nil {
		return nil, err
	}
	kept := entries[:0:0]
	for _, e := range entries {
		if e.alias != alias {
			kept = append(kept, e)
		} else if data != nil && bytes.HasSuffix(e.raw, der) {
			return data, nil
		}
	}
	return formatStore(append(kept, trusted(alias, der))), nil
}

// trustedAll is an entry for each certificate.
func trustedAll(certs [][]byte) []entry {
	entries := make([]entry, 0, len(certs)+1)
	for i, der := range certs {
		entries = append(entries, trusted(fmt.Sprintf("root-%d", i+1), der))
	}
	return entries
}

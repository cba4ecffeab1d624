package trust

import (
	"encoding/asn1"
	"errors"
	"fmt"
)

// Newer JDKs come with a PKCS #12 store that has no password. What is
// encrypted is not read. go-pkcs12 hashes as often as a store says, to check its
// digest, and refuses one that has a certificate which Go can't parse or which
// lacks Java's mark.
var (
	oidData     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidCertBag  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidX509     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
	pkcs12Ver   = 3
	derSequence = byte(0x30)
)

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"explicit,optional,tag:0"`
}

type pfx struct {
	Version  int
	AuthSafe contentInfo
	MAC      asn1.RawValue `asn1:"optional"`
}

type safeBag struct {
	ID         asn1.ObjectIdentifier
	Value      asn1.RawValue `asn1:"explicit,tag:0"`
	Attributes asn1.RawValue `asn1:"optional"`
}

type certBag struct {
	ID   asn1.ObjectIdentifier
	Data []byte `asn1:"explicit,tag:0"`
}

func isPKCS12(data []byte) bool { return len(data) > 0 && data[0] == derSequence }

// pkcs12Certificates returns the certificates of a store without a password,
// in DER.
func pkcs12Certificates(data []byte) ([][]byte, error) {
	var p pfx
	if err := unmarshal(data, &p); err != nil {
		return nil, err
	}
	if p.Version != pkcs12Ver {
		return nil, fmt.Errorf("version %d of PKCS #12 is not supported", p.Version)
	}
	var infos []contentInfo
	if err := p.AuthSafe.unwrap(&infos); err != nil {
		return nil, err
	}
	var certs [][]byte
	for _, info := range infos {
		var bags []safeBag
		if err := info.unwrap(&bags); err != nil {
			return nil, err
		}
		for _, b := range bags {
			var c certBag
			if !b.ID.Equal(oidCertBag) {
				return nil, errors.New("the store holds more than certificates")
			}
			if err := unmarshal(b.Value.Bytes, &c); err != nil {
				return nil, err
			}
			if !c.ID.Equal(oidX509) || len(certs) >= maxEntries {
				return nil, errNoStore
			}
			certs = append(certs, c.Data)
		}
	}
	return certs, nil
}

// unwrap reads what lies in plain data.
func (c contentInfo) unwrap(into any) error {
	if !c.Type.Equal(oidData) {
		return errors.New("the store is encrypted")
	}
	var octets []byte
	if err := unmarshal(c.Content.Bytes, &octets); err != nil {
		return err
	}
	return unmarshal(octets, into)
}

func unmarshal(der []byte, into any) error {
	rest, err := asn1.Unmarshal(der, into)
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	if len(rest) > 0 {
		return errNoStore
	}
	return nil
}

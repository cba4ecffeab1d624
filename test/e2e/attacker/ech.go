package main

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
)

// echConfig is a list of one configuration, by which a client hides whom it
// asks for behind a public name.
func echConfig(public string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	vector := func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
	}
	body := []byte{7, 0, 0x20} // its number, and DHKEM with X25519
	body = append(body, vector(key.PublicKey().Bytes())...)
	body = append(body, vector([]byte{0, 1, 0, 1})...) // HKDF-SHA256, AES-128-GCM
	body = append(body, 0, byte(len(public)))
	body = append(body, public...)
	body = append(body, 0, 0) // no extensions
	return vector(append([]byte{0xfe, 0x0d}, vector(body)...)), nil
}

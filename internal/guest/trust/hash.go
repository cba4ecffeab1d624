package trust

import (
	"crypto/sha1"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// attribute is one part of a name, such as a common name.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// attributeSET is the parts that stand together; its name's end has package
// asn1 treat it as a set.
type attributeSET []attribute

// The types of strings that OpenSSL compares as text.
const (
	tagT61       = 20
	tagVisible   = 26
	tagUniversal = 28
)

// subjectHash is the name under which OpenSSL looks for a certificate in a
// directory: the start of the SHA-1 of the subject, each string of it in UTF-8
// and lower case, without needless spaces, and the sequence's own header left
// out.
func subjectHash(rawSubject []byte) (string, error) {
	var name []attributeSET
	if rest, err := asn1.Unmarshal(rawSubject, &name); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("the subject is not a name: %w", err)
	}
	h := sha1.New()
	for _, set := range name {
		for i, a := range set {
			text, ok, err := textOf(a.Value)
			if err != nil {
				return "", fmt.Errorf("the subject's %v: %w", a.Type, err)
			}
			if ok {
				set[i].Value = asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: canonical(text)}
			}
		}
		der, err := asn1.Marshal(set)
		if err != nil {
			return "", fmt.Errorf("the subject: %w", err)
		}
		h.Write(der)
	}
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(h.Sum(nil))), nil
}

// textOf returns a string in UTF-8; not ok for values that are no text.
func textOf(v asn1.RawValue) (text []byte, ok bool, err error) {
	if v.Class != asn1.ClassUniversal || v.IsCompound {
		return nil, false, nil
	}
	switch v.Tag {
	case asn1.TagUTF8String:
		if !utf8.Valid(v.Bytes) {
			return nil, false, fmt.Errorf("%q is not UTF-8", v.Bytes)
		}
		return v.Bytes, true, nil
	case asn1.TagPrintableString, asn1.TagIA5String, tagVisible, tagT61: // one byte, one character
		for _, b := range v.Bytes {
			text = utf8.AppendRune(text, rune(b))
		}
		return text, true, nil
	case asn1.TagBMPString:
		if len(v.Bytes)%2 != 0 {
			return nil, false, fmt.Errorf("%d bytes are not whole characters of two", len(v.Bytes))
		}
		for i := 0; i < len(v.Bytes); i += 2 {
			r := rune(binary.BigEndian.Uint16(v.Bytes[i:]))
			if utf16.IsSurrogate(r) {
				return nil, false, fmt.Errorf("character %#x stands for none", r)
			}
			text = utf8.AppendRune(text, r)
		}
		return text, true, nil
	case tagUniversal:
		return nil, false, fmt.Errorf("strings of type %d are not supported", v.Tag)
	}
	return nil, false, nil
}

// canonical makes ASCII letters small, and runs of spaces one, of which none
// is left at either end.
func canonical(text []byte) []byte {
	out := make([]byte, 0, len(text))
	space := false
	for _, b := range text {
		switch b {
		case ' ', '\t', '\n', '\v', '\f', '\r':
			space = len(out) > 0
			continue
		}
		if space {
			out = append(out, ' ')
			space = false
		}
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		out = append(out, b)
	}
	return out
}

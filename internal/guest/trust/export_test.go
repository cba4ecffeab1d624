package trust

// What tests look at from outside.
var (
	SubjectHash        = subjectHash
	PKCS12Certificates = pkcs12Certificates
	WithAuthority      = withAuthority
)

// NewStore is a JKS store of those certificates, in DER.
func NewStore(certs ...[]byte) []byte { return formatStore(trustedAll(certs)) }

// Aliases are those of a JKS store's entries.
func Aliases(store []byte) (names []string, err error) {
	entries, err := parseStore(store)
	for _, e := range entries {
		names = append(names, e.alias)
	}
	return names, err
}

// Sign makes of data a store whose header and digest are right.
func Sign(data []byte) []byte {
	out := append([]byte{0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2}, data[8:]...)
	return append(out, storeDigest(out)...)
}

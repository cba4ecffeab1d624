package image

// ParseReference returns the short form of a reference, and for what the
// registry is asked.
func ParseReference(s string) (short, host, repository, identifier string, err error) {
	r, err := parseReference(s)
	if err != nil {
		return "", "", "", "", err
	}
	return r.String(), r.repo.RegistryStr(), r.repo.RepositoryStr(), r.identifier(), nil
}

// What tests of the network's side call.
var (
	Loopback         = loopback
	UnpackMain       = unpackMain // the role without root
	Inward           = inward
	OutsideTransport = outsideTransport
)

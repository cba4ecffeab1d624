package weak

// Of the gate's policy.
const (
	NetAddressesOpen  Weakness = "net-addresses-open"   // no address is closed for what it is
	NetNumbersOpen    Weakness = "net-numbers-open"     // addresses in disguise (0177.0.0.1, 0x7f.1) are names
	NetPathsRaw       Weakness = "net-paths-raw"        // paths are compared as they came
	NetNamesAsWritten Weakness = "net-names-as-written" // names of fields and parameters are compared as they are written
	NetMatchesOff     Weakness = "net-matches-off"      // a rule about a host lets every request to it through
	NetResolversOpen  Weakness = "net-resolvers-open"   // the default lets names be resolved past the gate
	NetDNSPortsOpen   Weakness = "net-dns-ports-open"   // DNS, encrypted DNS and QUIC go wherever other traffic does
	NetSecretsInClear Weakness = "net-secrets-in-clear" // secrets are put into requests without TLS
)

package weak

// Of the gate's resolver.
const (
	NetDNSOpen      Weakness = "net-dns-open"      // names that no rule is about are asked for outside
	NetTypesOpen    Weakness = "net-types-open"    // every type is asked for outside
	NetRebindOpen   Weakness = "net-rebind-open"   // closed addresses stay in answers
	NetTunnelOpen   Weakness = "net-tunnel-open"   // names below a wildcard have any shape, and there is no bound on new ones
	NetQueryFlood   Weakness = "net-query-flood"   // no bound on questions
	NetForgedOpen   Weakness = "net-forged-open"   // answers need not repeat the question
	NetNumbersAsked Weakness = "net-numbers-asked" // what some read as an address is asked for outside
)

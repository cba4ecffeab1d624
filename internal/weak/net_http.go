package weak

// Of the gate's reading of HTTP.
const (
	NetNamesUnbound         Weakness = "net-names-unbound"         // SNI, Host, :authority and address may disagree
	NetTunnelUnbound        Weakness = "net-tunnel-unbound"        // what is in a CONNECT may be for another host
	NetFramingLax           Weakness = "net-framing-lax"           // HTTP/1 is read by net/http alone
	NetUpstreamUnverified   Weakness = "net-upstream-unverified"   // any certificate of an upstream will do
	NetConnectionsUnbounded Weakness = "net-connections-unbounded" // any number of connections is served
	NetSlowOpen             Weakness = "net-slow-open"             // heads and bodies may take for ever
	NetConnectPass          Weakness = "net-connect-pass"          // CONNECT is passed on to upstreams
	NetFieldsLax            Weakness = "net-fields-lax"            // fields of HTTP/2 that mean another thing elsewhere are passed on
	NetPoolShared           Weakness = "net-pool-shared"           // connections to upstreams are used for whatever comes next
	NetRecordRaw            Weakness = "net-record-raw"            // paths are recorded as they mean, not as they are written
)

package weak

// Of the link between a sandbox and its gate.
const (
	NetSourceAny     Weakness = "net-source-any"     // frames of any sender are taken
	NetFragmentsOpen Weakness = "net-fragments-open" // parts of packets are put together
	NetOptionsOpen   Weakness = "net-options-open"   // packets with IP options are taken
	NetOversizeOpen  Weakness = "net-oversize-open"  // frames may be longer than the MTU
	NetEchoOpen      Weakness = "net-echo-open"      // echo requests to any address are answered
	NetBoundsOff     Weakness = "net-bounds-off"     // no bound on connections and flows
)

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

// Of what a person is asked.
const (
	NetAskOff       Weakness = "net-ask-off"       // what a rule asks for goes on unasked
	NetAskLoose     Weakness = "net-ask-loose"     // what is granted for one request is granted for every request of its rule
	NetAskStale     Weakness = "net-ask-stale"     // what was granted outlives the policy under which it was
	NetAskUnbounded Weakness = "net-ask-unbounded" // any number of questions is held
	NetAskInside    Weakness = "net-ask-inside"    // the gate takes answers from inside, too
)

// Of the gate: what it reads of TLS, and the connections that it carries.
const (
	NetHelloLax       Weakness = "net-hello-lax"       // any bytes are a server name
	NetECHUnseen      Weakness = "net-ech-unseen"      // encrypted_client_hello is not noticed
	NetRetryUnchecked Weakness = "net-retry-unchecked" // a second ClientHello may ask for another name
	NetRecheckOff     Weakness = "net-recheck-off"     // a change of policy leaves open connections alone
	NetFlowsUnbounded Weakness = "net-flows-unbounded" // any number of connections may be open
	NetLimitsOff      Weakness = "net-limits-off"      // no limit of bytes, in one connection or in all
)

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
	NetCallerForged         Weakness = "net-caller-forged"         // a guest may say as whom it calls a service
	NetRecordRaw            Weakness = "net-record-raw"            // paths are recorded as they mean, not as they are written
)

// Of the gate's keeping of secrets.
const (
	NetPlaceholdersPass Weakness = "net-placeholders-pass" // placeholders go anywhere
	NetForeignPass      Weakness = "net-foreign-pass"      // credentials of the guest's own go where the gate puts a secret
	NetEchoPass         Weakness = "net-echo-pass"         // answers are not searched for values
	NetHeldPass         Weakness = "net-held-pass"         // what is held back goes on however a stream ends
	NetPartsPass        Weakness = "net-parts-pass"        // Range and TRACE go where the gate puts a secret
	NetSecretsRoam      Weakness = "net-secrets-roam"      // values go wherever their placeholder stands in Authorization
	NetSecretsUnlooked  Weakness = "net-secrets-unlooked"  // a request goes on with a secret that its rule does not give
)

// Of the gate's process.
const (
	NetGateAsRoot     Weakness = "net-gate-as-root"    // it keeps the daemon's user and root directory
	NetOffersShared   Weakness = "net-offers-shared"   // what is offered goes to the gate that was started last
	NetGateUnfiltered Weakness = "net-gate-unfiltered" // it may make any system call
)

// Of the probe that a sandbox makes of its own network.
const (
	NetProbeBlind Weakness = "net-probe-blind" // every attempt is said to have ended as it should
)

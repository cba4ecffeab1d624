package e2e

import (
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// attackRow is one line of the table of attacks on the gate: what is tried,
// what holds it, and the weakness under which the same attempts succeed.
type attackRow struct {
	hazard string
	holds  string
	weak   weak.Weakness
	// with is seeded as well: what holds is one of several lines of defence,
	// and shows only where the others are gone. Without weak, with alone must
	// let nothing through.
	with     []weak.Weakness
	attempts []string // of the attacker, and of outsideAttempts
	// unit is a package whose own test notices, where no command can try: what
	// only a guest without a kernel in its way could send.
	unit, test string
	// apart is a row whose attempts, or another row's, get nowhere where more is seeded.
	apart bool
}

func (r attackRow) seeds() []weak.Weakness { return append([]weak.Weakness{r.weak}, r.with...) }

func (r attackRow) name() string { return joinWeak(r.seeds(), "+") + "/" + r.hazard }

func joinWeak(list []weak.Weakness, sep string) string {
	texts := make([]string, len(list))
	for i, w := range list {
		texts[i] = string(w)
	}
	return strings.Join(texts, sep)
}

// line is the row in the document's table.
func (r attackRow) line() string {
	seeded := string(r.weak)
	if len(r.with) > 0 {
		seeded += ", where " + joinWeak(r.with, " and ") + " is seeded too"
	}
	by := strings.Join(r.attempts, ", ")
	if r.unit != "" {
		by = "`" + r.unit + "." + r.test + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", r.hazard, r.holds, seeded, by)
}

const attackHead = "| attack | what holds it | seeded weakness | attempts that get through then |\n|---|---|---|---|\n"

func attackTable() string {
	var b strings.Builder
	b.WriteString(attackHead)
	for _, r := range attackRows {
		b.WriteString(r.line())
	}
	return b.String()
}

// What holds, where it is the same.
const (
	heldByAgreement = "server name, host and address must agree, for every request"
	heldByClosed    = "special addresses are closed, at each connection, however a name came to them"
	heldByLink      = "frames are looked at before anything reads them"
	heldByBounds    = "three bounds, one behind the other; what is over is reset"
)

var attackRows = []attackRow{
	{hazard: "domain fronting", holds: heldByAgreement, weak: weak.NetNamesUnbound, attempts: []string{"domain-fronting"}},
	{hazard: "host and server name swapped on a kept connection", holds: heldByAgreement, weak: weak.NetNamesUnbound, attempts: []string{"host-swap"}},
	{hazard: "HTTP/2: another authority, coalescing", holds: heldByAgreement, weak: weak.NetNamesUnbound, attempts: []string{"h2-authority"}},
	{hazard: "absolute-form requests", holds: heldByAgreement, weak: weak.NetNamesUnbound, attempts: []string{"absolute-form"}},
	{hazard: "trailing dots", holds: "one form of a name, which is compared", weak: weak.NetNamesUnbound, attempts: []string{"trailing-dots"}},
	{hazard: "names in other cases and scripts", holds: "one form of a name, which is compared", weak: weak.NetNamesUnbound, attempts: []string{"case-and-idn"}},
	{hazard: "relays by CONNECT", holds: "it is for the gate's proxy, which reads what is in it", weak: weak.NetConnectPass, attempts: []string{"connect-relay"}},
	{hazard: "another host within a CONNECT", holds: heldByAgreement, weak: weak.NetTunnelUnbound, attempts: []string{"tunnel-swap"}},
	{hazard: "a name hidden in a hello (ECH)", holds: "refused where TLS passes unread", weak: weak.NetECHUnseen, attempts: []string{"hidden-hello"}},
	{hazard: "a server name that is none", holds: "refused", weak: weak.NetHelloLax, unit: "internal/egress/tlswire", test: "TestReadHelloRefuses"},
	{hazard: "another server name in a second hello", holds: "both must be alike", weak: weak.NetRetryUnchecked, unit: "internal/egress/tlswire", test: "TestRetry"},

	{hazard: "a link in a volume to a file of the host's", holds: "the content API stays below the volume", weak: weak.VolumeLinksFollowed, unit: "internal/volume/content", test: "TestHostileTree"},
	{hazard: "one lock of a shared file, taken on both sides of a wall", holds: "the sentry takes those of what others see on the host, too", weak: weak.LocksInside, unit: "internal/backend/instance", test: "TestLocked"},
	{hazard: "a lock of a sandbox that can only read, which keeps those waiting who write", holds: "behind gVisor it is taken inside alone", weak: weak.LocksOfReaders, unit: "internal/backend/instance", test: "TestLocked"},
	{hazard: "a host's disk that is full under a writer", holds: "what finds no room waits, and fails nowhere", weak: weak.DiskNotHeld, unit: "internal/backend/disk/hold", test: "TestFullDisk"},
	{hazard: "what was removed from a disk, read from its image", holds: "a scrub overwrites what no file has", weak: weak.ScrubKept, unit: "internal/disk/scrub", test: "TestNothingIsFound"},
	{hazard: "a link that a guest put in a name's place", holds: "the host uses names from an open directory, through no link", weak: weak.NamesFollowed, unit: "internal/beneath", test: "TestPlantedLinks"},
	{hazard: "a link where a repository has its agents", holds: "they are opened beneath it, through no link", weak: weak.NamesFollowed, unit: "internal/manifest", test: "TestHostileRepository"},
	{hazard: "an agent of a repository's that reaches more than its bottle", holds: "its policy is proved to lie within the bottle's", weak: weak.BottleWidened, unit: "internal/manifest", test: "TestRepository"},
	{hazard: "a guest that answers in its agent's place", holds: "host and agent know each other by a key of this start's", weak: weak.PeerUnproved, unit: "internal/guest/control", test: "TestFakeAgent"},
	{hazard: "an object of git's that takes over the git that reads it", holds: "it reads behind Landlock and a filter of calls, without a network", weak: weak.ReaderFree, unit: "internal/quarantine/jail", test: "TestReader"},
	{hazard: "commits with .git in a tree, bad modes, or objects that are missing", holds: "git looks at each object strictly, and at whether they are whole", weak: weak.ObjectsUnchecked, unit: "internal/quarantine", test: "TestHostileObjects"},
	{hazard: "a secret in what is pushed, deleted by a later commit or encoded", holds: "each object that is new to upstream is searched, before anything leaves", weak: weak.GitUnscanned, unit: "internal/gitgate", test: "TestSecrets"},
	{hazard: "a push that a person is to be asked about, and nobody can be", holds: "refused", weak: weak.GitAskOpen, unit: "internal/gitgate", test: "TestAskFailsClosed"},
	{hazard: "another host in the place of a git upstream", holds: "it is known by keys that were told before", weak: weak.GitHostUnproved, unit: "internal/gitgate", test: "TestHostKey"},
	{hazard: "a git upstream that sends a credential and a push to another host", holds: "no redirect leads there", weak: weak.GitRedirected, unit: "internal/gitgate", test: "TestRedirect"},
	{hazard: "a page of a sandbox that asks the API", holds: "pages reach sandboxes alone", weak: weak.ServerPagesAllowed, unit: "internal/server", test: "TestPagesKeepOutOfAPI"},
	{hazard: "a page of a sandbox that asks another's guest agent", holds: "a token, which no browser adds", weak: weak.ServerTokenIgnored, unit: "internal/server", test: "TestPagesKeepOutOfAgents"},
	{hazard: "a signed link that is used as another user", holds: "where a signature let it in, the link alone names a user", weak: weak.ServerUserUnsigned, unit: "internal/server", test: "TestSignedForItsUserAlone"},
	{hazard: "a key that asks for a weaker wall than it may have", holds: "the weakest wall is its key's, its team's or the daemon's", weak: weak.FloorOpen, unit: "internal/sandbox", test: "TestFloor"},
	{hazard: "another user at a sandbox's port on the loopback", holds: "the kernel says whose socket it is", weak: weak.LoopbackForAll, unit: "internal/loopback", test: "TestOthersAreReset"},
	{hazard: "a page of another origin with the cookie of an opened port", holds: "Origin, Sec-Fetch-Site and the cookie's SameSite", weak: weak.OpenPagesAllowed, unit: "internal/server", test: "TestOpenedToItsOwnPages"},
	{hazard: "a link of carboy open that is used again", holds: "a link is forgotten with its first use", weak: weak.OpenLinkKept, unit: "internal/server", test: "TestLinkWorksOnce"},
	{hazard: "a caller who writes that a sandbox was started", holds: "types of callers' events are their own", weak: weak.ServerEventsForged, unit: "internal/server", test: "TestCallersEvents"},
	{hazard: "cookies for other sandboxes in interim answers and trailers", holds: "they are cleaned as answers are", weak: weak.ServerAnswersRaw, unit: "internal/server", test: "TestInterimAndTrailersAreCleaned"},
	{hazard: "a user's directory or link on root's way to its state", holds: "each part of the way is root's", weak: weak.WaysOfOthers, unit: "internal/home", test: "TestCreateByTheWaysOfOthers"},
	{hazard: "a key that makes one with more than it has", holds: "a grant is within its maker's", weak: weak.ServerGrantsMore, unit: "internal/server", test: "TestKeysGrantNoMore"},
	{hazard: "a key that asks about paths of the host", holds: "unopened, or one answer", weak: weak.HostPathsTold, unit: "internal/server/hostdir", test: "TestBlind"},
	{hazard: "a session that names a weaker wall", holds: "the operator's is the least", weak: weak.SessionWallOpen, unit: "internal/session", test: "TestWeakerWall"},
	{hazard: "a sandbox that says it is a session's", holds: "no caller may give its label", weak: weak.SessionMarkForged, unit: "internal/sandbox", test: "TestCallersLabels"},

	{hazard: "rebinding", holds: heldByClosed, weak: weak.NetAddressesOpen, attempts: []string{"rebinding"}},
	{hazard: "an alias of a private name", holds: heldByClosed, weak: weak.NetAddressesOpen, attempts: []string{"cname-to-private"}},
	{hazard: "IPv4 within IPv6, NAT64", holds: heldByClosed, weak: weak.NetAddressesOpen, attempts: []string{"wrapped-addresses"}},
	{hazard: "metadata services, loopback of the host", holds: heldByClosed, weak: weak.NetAddressesOpen, attempts: []string{"metadata-and-loopback"}},
	{hazard: "a private address told by DNS", holds: "taken out of answers", weak: weak.NetRebindOpen, attempts: []string{"dns-closed-answers"}},
	{hazard: "decimal and octal addresses", holds: "they are no names", weak: weak.NetNumbersAsked, with: []weak.Weakness{weak.NetNumbersOpen}, attempts: []string{"by-number"}},
	{hazard: "decimal and octal addresses", holds: "nor for a policy", weak: weak.NetNumbersOpen, with: []weak.Weakness{weak.NetNumbersAsked}, attempts: []string{"by-number"}},
	{hazard: "another sandbox", holds: "a network namespace for each", weak: weak.NetworkShared, with: []weak.Weakness{weak.NetProbeBlind}, attempts: []string{"other-sandbox"}},
	{hazard: "a network that is not what was promised", holds: "what must fail is tried before a create returns", weak: weak.NetProbeBlind, with: []weak.Weakness{weak.NetworkShared}, attempts: []string{"host-loopback"}, apart: true},

	{hazard: "something carried out in a name's question", holds: "names that no rule is about are not asked for", weak: weak.NetDNSOpen, attempts: []string{"dns-unlisted"}},
	{hazard: "something carried out in names that do not exist", holds: "bounds on shape and number of new names", weak: weak.NetTunnelOpen, attempts: []string{"dns-tunnel"}},
	{hazard: "TXT, NULL and other types", holds: "they are closed", weak: weak.NetTypesOpen, attempts: []string{"dns-types"}},
	{hazard: "a flood of questions", holds: "a bound for each minute", weak: weak.NetQueryFlood, attempts: []string{"dns-flood"}},
	{hazard: "forged answers", holds: "an answer repeats its question", weak: weak.NetForgedOpen, attempts: []string{"dns-forged"}},
	{hazard: "DNS elsewhere, also over TLS; QUIC", holds: "their ports are closed", weak: weak.NetDNSPortsOpen, attempts: []string{"dns-elsewhere"}},
	{hazard: "DNS over HTTPS", holds: "names of resolvers are closed", weak: weak.NetResolversOpen, attempts: []string{"dns-over-https"}},

	{hazard: "a redirect with a secret", holds: "a value goes where its rule says, alone", weak: weak.NetSecretsRoam, with: []weak.Weakness{weak.NetSecretsUnlooked}, attempts: []string{"redirect-with-secret"}},
	{hazard: "a redirect with a secret", holds: "what a request uses is held to its rule before it goes", weak: weak.NetSecretsUnlooked, with: []weak.Weakness{weak.NetSecretsRoam}, attempts: []string{"redirect-with-secret"}},
	{hazard: "a secret in the clear", holds: "values go over TLS alone", weak: weak.NetSecretsInClear, attempts: []string{"secret-in-clear"}, apart: true},
	{hazard: "a secret reflected", holds: "answers are searched, decoded", weak: weak.NetEchoPass, attempts: []string{"reflection"}},
	{hazard: "a secret reflected in parts", holds: "Range and TRACE are refused", weak: weak.NetPartsPass, attempts: []string{"in-parts"}},
	{hazard: "a secret in an answer that breaks off", holds: "what is held back goes on at a good end alone", weak: weak.NetHeldPass, unit: "internal/egress/inject", test: "TestBrokenOffAnswers"},
	{hazard: "a placeholder in a gist", holds: "refused everywhere but in its place", weak: weak.NetPlaceholdersPass, attempts: []string{"placeholder-in-gist"}},
	{hazard: "a foreign key on an allowed host", holds: "credentials of the guest's own are refused", weak: weak.NetForeignPass, attempts: []string{"foreign-key"}},
	{hazard: "publishing under a read-only preset", holds: "methods and paths of each rule", weak: weak.NetMatchesOff, attempts: []string{"publish"}},

	{hazard: "paths that mean another place", holds: "a path that could be read in two ways is none that a rule allows", weak: weak.NetPathsRaw, attempts: []string{"path-tricks"}},

	{hazard: "names that servers read as others", holds: "one table of names, folded as servers fold them", weak: weak.NetNamesAsWritten, attempts: []string{"publish", "foreign-key"}},

	{hazard: "CR, LF and folds in header fields", holds: "one reading of HTTP/1, or none", weak: weak.NetFramingLax, attempts: []string{"header-injection"}},
	{hazard: "lengths that disagree (CL.TE, TE.CL)", holds: "one reading of HTTP/1, or none", weak: weak.NetFramingLax, attempts: []string{"length-smuggling"}},
	{hazard: "HTTP/2 that becomes other HTTP/1", holds: "fields that change meaning are refused", weak: weak.NetFieldsLax, attempts: []string{"h2-downgrade"}},
	{hazard: "slowloris from inside", holds: "heads and hellos have a time", weak: weak.NetSlowOpen, attempts: []string{"slowloris"}},
	{hazard: "more connections than the bound", holds: heldByBounds, weak: weak.NetBoundsOff, with: []weak.Weakness{weak.NetFlowsUnbounded, weak.NetConnectionsUnbounded}, attempts: []string{"too-many-connections"}},
	{hazard: "more connections than the bound", holds: heldByBounds, weak: weak.NetFlowsUnbounded, with: []weak.Weakness{weak.NetBoundsOff, weak.NetConnectionsUnbounded}, attempts: []string{"too-many-connections"}},
	{hazard: "more connections than the bound", holds: heldByBounds, weak: weak.NetConnectionsUnbounded, with: []weak.Weakness{weak.NetBoundsOff, weak.NetFlowsUnbounded}, attempts: []string{"too-many-connections"}},
	{hazard: "an upstream that never ends", holds: "the rule's limit of bytes", weak: weak.NetLimitsOff, attempts: []string{"endless-answer"}},
	{hazard: "an upstream that answers before it is asked", holds: "its connection is used for its own host alone", weak: weak.NetPoolShared, attempts: []string{"answer-before-asked"}, apart: true},
	{hazard: "certificates: wrong name, expired, with a NUL, unsigned", holds: "upstreams are verified", weak: weak.NetUpstreamUnverified, attempts: []string{"bad-certificates"}},

	{hazard: "a request that a rule has a person asked about", holds: "the gate holds it until one has answered", weak: weak.NetAskOff, unit: "internal/policy", test: "TestAsk"},
	{hazard: "a request that differs from the one that was allowed", holds: "a grant is of all that was asked", weak: weak.NetAskLoose, unit: "internal/approval", test: "TestGrantIsForItsQuestionAlone"},
	{hazard: "what was allowed under another policy", holds: "a grant is of its policy's revision", weak: weak.NetAskStale, unit: "internal/approval", test: "TestChangedPolicyVoids"},
	{hazard: "any number of questions", holds: "a bounded queue", weak: weak.NetAskUnbounded, unit: "internal/approval", test: "TestBounded"},
	{hazard: "a sandbox that answers its own question", holds: "answers come by a socket outside", weak: weak.NetAskInside, unit: "internal/egress", test: "TestNothingInsideAnswers"},
	{hazard: "ARP, spoofed senders", holds: heldByLink, weak: weak.NetSourceAny, unit: "internal/egress/link", test: "TestFilter"},
	{hazard: "fragments", holds: heldByLink, weak: weak.NetFragmentsOpen, unit: "internal/egress/link", test: "TestFilter"},
	{hazard: "raw frames: IP options", holds: heldByLink, weak: weak.NetOptionsOpen, unit: "internal/egress/link", test: "TestFilter"},
	{hazard: "ignored MTU", holds: heldByLink, weak: weak.NetOversizeOpen, unit: "internal/egress/link", test: "TestFilter"},
	{hazard: "pings elsewhere", holds: "the gate's own addresses alone answer", weak: weak.NetEchoOpen, unit: "internal/egress/link", test: "TestFilter"},
	{hazard: "a policy that changes under an open stream", holds: "what is open is asked about again, and cut", weak: weak.NetRecheckOff, attempts: []string{"open-stream", "open-request"}},
	{hazard: "terminal escapes in a logged path", holds: "recorded as it was written, in ASCII", weak: weak.NetRecordRaw, with: []weak.Weakness{weak.EscapesRaw}, attempts: []string{"logged-escapes"}},
	{hazard: "terminal escapes in a logged path", holds: "escaped where it is printed", weak: weak.EscapesRaw, with: []weak.Weakness{weak.NetRecordRaw}, attempts: []string{"logged-escapes"}},
	{hazard: "a forged name in a call of a service", holds: "who calls is the gate's to say", weak: weak.NetCallerForged, unit: "internal/egress/proxy", test: "TestServiceCaller"},
	{hazard: "a call of what another sandbox is offered", holds: "each gate has a socket of its own", weak: weak.NetOffersShared, unit: "internal/egress", test: "TestOffersAreOneSandboxs"},
	{hazard: "a gate that was taken over", holds: "it has no user's rights and an empty root", weak: weak.NetGateAsRoot, attempts: []string{"gate-rights"}},
	{hazard: "a gate that was taken over", holds: "a list of system calls", weak: weak.NetGateUnfiltered, attempts: []string{"gate-calls"}},
}

// seededElsewhere are attempts without a row here: what holds them is a wall's.
var seededElsewhere = map[string]weak.Weakness{
	"raw-sockets": weak.RawSocketAllowed, // which test/escape seeds
}

// attackBoxes are the sandboxes that attempts are made in. Each has the
// attempts of one of these at once.
var attackBoxes = []attackBox{
	{name: "rules", attempts: []string{
		"domain-fronting", "host-swap", "h2-authority", "connect-relay", "tunnel-swap", "absolute-form", "trailing-dots", "case-and-idn", "hidden-hello",
		"rebinding", "cname-to-private", "wrapped-addresses", "metadata-and-loopback", "host-loopback",
		"dns-unlisted", "dns-tunnel", "dns-types", "dns-closed-answers", "dns-forged",
		"redirect-with-secret", "secret-in-clear", "reflection", "in-parts", "placeholder-in-gist", "foreign-key", "publish", "path-tricks",
		"header-injection", "length-smuggling", "h2-downgrade", "slowloris", "endless-answer", "answer-before-asked", "bad-certificates",
		"gate-rights", "gate-calls", "raw-sockets",
	}},
	{name: "public", public: true, attempts: []string{"by-number", "dns-elsewhere", "dns-over-https"}},
	{name: "flood", attempts: []string{"dns-flood"}},
	{name: "crowd", attempts: []string{"too-many-connections"}},
	{name: "pair", attempts: []string{"other-sandbox"}},
	{name: "changing", attempts: []string{"open-stream", "open-request"}},
	{name: "log", attempts: []string{"logged-escapes"}},
}

type attackBox struct {
	name     string
	public   bool
	attempts []string
}

// attackPolicy is what the sandboxes with rules are under.
const attackPolicy = `
version: 1
presets: [npm]
dns: {upstreams: ["` + worldC + `"]}
rules:
  - {id: front, hosts: [front.example]}
  - {id: other, hosts: [other.example]}
  - {id: wild, hosts: ["*.wild.example"]}
  - {id: tunnel, hosts: ["*.tunnel.example"]}
  - {id: certificates, hosts: [wrong.example, expired.example, nul.example, unsigned.example]}
  - {id: hostile, hosts: [hostile.example]}
  - {id: paths, hosts: [paths.example], matches: [{paths: [{value: /open}]}]}
  - {id: unread, hosts: [unread.example], protocol: tls}
  - {id: endless, hosts: [endless.example], limits: {response_bytes: 65536}}
  - id: api
    hosts: [api.example]
    secrets: [{name: TOKEN, header: Authorization, scheme: Bearer}]
`

// laterRules are those that are taken away while they are in use.
const laterRules = `
  - {id: stream, hosts: [stream.example], ports: ["9000"], protocol: tcp}
  - {id: later, hosts: [later.example]}
`

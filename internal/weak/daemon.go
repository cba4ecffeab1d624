package weak

// Of the server, on the way to sandboxes, and of where it keeps what it knows.
const (
	WaysOfOthers       Weakness = "ways-of-others"       // directories and links of other users lead to the state and the configuration
	ServerPagesAllowed Weakness = "server-pages-allowed" // pages of browsers may ask the API, and read what it answers
	ServerTokenIgnored Weakness = "server-token-ignored" // a guest agent is reached without its token
	ServerUserUnsigned Weakness = "server-user-unsigned" // a signed link to a file works for a user whom it does not name
	ServerGrantsMore   Weakness = "server-grants-more"   // an administrator's key makes keys of scopes that it has not
	ServerEventsForged Weakness = "server-events-forged" // callers write lines of a sandbox's life
	ServerAnswersRaw   Weakness = "server-answers-raw"   // a guest's interim answers and trailers are passed on as they are
	HostPathsTold      Weakness = "host-paths-told"      // a key learns what is at paths that it may not name
)

// Of ports of sandboxes on the machine's loopback.
const (
	LoopbackForAll   Weakness = "loopback-for-all"   // whose socket is at the other end is not asked
	OpenPagesAllowed Weakness = "open-pages-allowed" // pages of other origins ask with the cookie of a sandbox that was opened
	OpenLinkKept     Weakness = "open-link-kept"     // the link of carboy open can be used again
)

// Of whom the daemon serves.
const (
	FloorOpen Weakness = "floor-open" // a key may name a wall that is weaker than it may have
)

// Of sessions.
const (
	SessionWallOpen   Weakness = "session-wall-open"   // a request may name a wall that is weaker than the configured one
	SessionMarkForged Weakness = "session-mark-forged" // a sandbox of anybody's may say that it is a session's
)

// Of volumes, and of all that sandboxes share.
const (
	VolumeLinksFollowed Weakness = "volume-links-followed" // the content API follows links out of a volume, and sees the host's files
	LocksInside         Weakness = "locks-inside"          // behind gVisor locks in what is shared are seen by the sandbox alone
	LocksOfReaders      Weakness = "locks-of-readers"      // behind gVisor locks of what can only be read there hold on the host too
)

// Of commits that are taken.
const (
	ReaderFree       Weakness = "reader-free"       // the git that reads a sandbox's objects has all rights of the caller
	ObjectsUnchecked Weakness = "objects-unchecked" // no object of a sandbox is looked at, and none is missed
)

// Of the git gate.
const (
	GitHostUnproved Weakness = "git-host-unproved" // whatever key an upstream's host has is taken
	GitRedirected   Weakness = "git-redirected"    // an upstream may send requests to another host
	GitUnscanned    Weakness = "git-unscanned"     // nothing of what is pushed is searched for secrets
	GitAskOpen      Weakness = "git-ask-open"      // a question that nobody could answer is allowed
)

// Of bottles.
const (
	BottleWidened Weakness = "bottle-widened" // an agent's policy is taken to lie within its bottle's, whatever it says
)

// Of disks.
const (
	DiskNotHeld Weakness = "disk-not-held" // writes to a disk image fail where the host's disk is full
	ScrubKept   Weakness = "scrub-kept"    // a scrub unlinks, and overwrites nothing
)

// Of the way between the host and the guest agent.
const (
	PeerUnproved Weakness = "peer-unproved" // who answers at the agent's socket is the agent
)

// Of directories that a guest can change.
const (
	NamesFollowed Weakness = "names-followed" // the host follows links there, as calls by path do
)

package weak

// Of the server, on the way to sandboxes, and of where it keeps what it knows.
const (
	WaysOfOthers       Weakness = "ways-of-others"       // directories and links of other users lead to the state and the configuration
	ServerPagesAllowed Weakness = "server-pages-allowed" // pages of browsers may ask the API, and read what it answers
	ServerTokenIgnored Weakness = "server-token-ignored" // a guest agent is reached without its token
	ServerGrantsMore   Weakness = "server-grants-more"   // an administrator's key makes keys of scopes that it has not
	ServerEventsForged Weakness = "server-events-forged" // callers write lines of a sandbox's life
	ServerAnswersRaw   Weakness = "server-answers-raw"   // a guest's interim answers and trailers are passed on as they are
	HostPathsTold      Weakness = "host-paths-told"      // a key learns what is at paths that it may not name
)

package weak

// Of sessions.
const (
	SessionWallOpen   Weakness = "session-wall-open"   // a request may name a wall that is weaker than the configured one
	SessionMarkForged Weakness = "session-mark-forged" // a sandbox of anybody's may say that it is a session's
)

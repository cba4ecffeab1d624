package weak

// Of volumes.
const (
	VolumeLinksFollowed Weakness = "volume-links-followed" // the content API follows links out of a volume, and sees the host's files
)

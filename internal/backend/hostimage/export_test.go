package hostimage

// The parsers, for their fuzz targets.
var (
	Passwd      = passwd
	Group       = group
	MountPoints = mountPoints
	AptLines    = aptLines
)

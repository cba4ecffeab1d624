package interpreter

// For tests of the package.
var (
	ASCII   = ascii
	Setting = setting
)

package interpreter

// OutputForTest has cells put out so many bytes at most, until what it returns is called.
func OutputForTest(most int64) (restore func()) {
	was := maxOutput
	maxOutput = most
	return func() { maxOutput = was }
}

// For tests of the package.
var (
	ASCII   = ascii
	Setting = setting
)

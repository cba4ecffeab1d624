package secret

// OpenStepped is Open with a function that is told before each step of a
// write.
func OpenStepped(o Options, step func(string)) (*Store, error) { return open(o, step) }

package role

// Forget has every role be this program's again.
func Forget() { clear(elsewhere) }

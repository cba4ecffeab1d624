package repository

// ForSandbox is for tests.
func ForSandbox(text string) ([]byte, error) { return forSandbox(text, "..") }

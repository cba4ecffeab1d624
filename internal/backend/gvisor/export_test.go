package gvisor

func init() { builtWith = func() (string, error) { return "what the test was built with", nil } }

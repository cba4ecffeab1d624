package repository

// ForSandbox is for tests.
var ForSandbox = forSandbox

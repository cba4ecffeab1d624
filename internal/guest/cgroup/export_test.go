package cgroup

// What tests call and know.
const Patience = patience

var (
	MountForTest   = mount
	CounterForTest = value
	NumberForTest  = number
)

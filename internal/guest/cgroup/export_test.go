package cgroup

// What tests call.
var (
	MountForTest   = mount
	CounterForTest = value
	NumberForTest  = number
)

//go:build race

package egress

const raceDetector = true

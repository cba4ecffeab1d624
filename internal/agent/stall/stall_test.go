package stall_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent/stall"
)

func TestWatch(t *testing.T) {
	tests := []struct {
		name  string
		every time.Duration // between messages
		news  int           // each so many of them says something; 0: none
		ends  bool
	}{
		{"at-once", 0, 0, true},
		{"fast", time.Millisecond, 0, true},
		{"a-little-too-fast", 90 * time.Millisecond, 0, true},
		{"slow", time.Second / stall.PerSecond, 0, false},
		{"keep-alive", 20 * time.Second, 0, false},
		{"rare-news", 0, stall.Burst, false},
		{"too-rare-news", 0, stall.Burst + 2, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w stall.Watch
				var err error
				for i := 1; i <= 20*stall.Burst && err == nil; i++ {
					time.Sleep(tt.every)
					err = w.Saw(tt.news > 0 && i%tt.news == 0)
				}
				if (err != nil) != tt.ends {
					t.Errorf("err = %v, want an end: %v", err, tt.ends)
				}
			})
		})
	}
}

package gitgate_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
)

// TestIdle: an upstream that takes for long what is sent is waited for; one that does
// nothing any more is not.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := gitgate.IdleForTest(ours)
		heard := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			heard <- err
		}()
		go func() {
			for range 10 {
				time.Sleep(time.Minute)
				if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
		}()
		began := time.Now()
		for range 10 {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-heard; err == nil || !strings.Contains(err.Error(), "for two minutes") {
			t.Error(err)
		}
		if took := time.Since(began); took != 12*time.Minute {
			t.Errorf("it took %v", took)
		}
		_, _ = c.Close(), theirs.Close()
	})
}

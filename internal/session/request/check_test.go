package request_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/session/request"
)

func TestCheckLine(t *testing.T) {
	for line, ok := range map[string]bool{"pwd": true, "": false, " \n": false, "a\x00b": false} {
		if err := request.CheckLine(line); (err == nil) != ok {
			t.Errorf("CheckLine(%q) = %v, want ok %v", line, err, ok)
		}
	}
}

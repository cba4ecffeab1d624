package ingress

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestEarlyAnswersEndTheConnection(t *testing.T) {
	tests := []struct {
		name   string
		length int64 // of a body of ten bytes; -1: not told
		read   int
		status int
		ends   bool
	}{
		{"refused-unread", 10, 0, 400, true},
		{"refused-half-read", 10, 5, 507, true},
		{"refused-read", 10, 10, 400, false},
		{"taken-half-read", 10, 5, 200, false}, // both may talk at once
		{"refused-half-read-of-unknown", -1, 5, 400, true},
		{"refused-read-of-unknown", -1, 11, 400, false},
		{"refused-without-a-body", 0, 0, 400, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/files", strings.NewReader("0123456789"))
			r.ContentLength = tt.length
			left := watchBody(r)
			if _, err := io.ReadAtLeast(r.Body, make([]byte, tt.read), min(tt.read, 10)); err != nil {
				t.Fatal(err)
			}
			if tt.read > 10 { // to the end
				if _, err := io.ReadAll(r.Body); err != nil {
					t.Fatal(err)
				}
			}
			resp := &http.Response{StatusCode: tt.status, Header: http.Header{}}
			endAfter(resp, left)
			if got := resp.Header.Get("Connection") == "close"; got != tt.ends {
				t.Errorf("the connection ends: %v, want %v", got, tt.ends)
			}
		})
	}
}

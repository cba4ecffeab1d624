package sandbox_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestMaskHost(t *testing.T) {
	for _, tc := range []struct {
		name, mask, want string // of port 8080; want "" where it is refused
	}{
		{"none", "", ""},
		{"name", "localhost", "localhost"},
		{"name-and-port", "localhost:3000", "localhost:3000"},
		{"placeholder", "localhost:${PORT}", "localhost:8080"},
		{"placeholder-in-name", "${PORT}.app.test", "8080.app.test"},
		{"underscore", "my_app", "my_app"},
		{"v4", "127.0.0.1:80", "127.0.0.1:80"},
		{"v6", "[::1]:${PORT}", "[::1]:8080"},
		{"v6-alone", "[::1]", "[::1]"},
		{"crlf", "a\r\nX: y", ""},
		{"space", "a b", ""},
		{"path", "a/b", ""},
		{"userinfo", "a@b", ""},
		{"two-ports", "a:1:2", ""},
		{"no-port", "a:", ""},
		{"port-too-big", "a:65536", ""},
		{"other-placeholder", "a:${HOST}", ""},
		{"not-ascii", "b\u00fccher.test", ""},
		{"v6-bare", "::1", ""},
		{"bracket-no-v6", "[127.0.0.1]", ""},
		{"long", strings.Repeat("a", 254), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := maskSpec(tc.mask).Validate(sandbox.Offer{Walls: []string{sandbox.DefaultIsolation}})
			if tc.want == "" && tc.mask != "" {
				if got := sandbox.KindOf(err); got != sandbox.Invalid {
					t.Errorf("Validate = %v, want it invalid", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := (sandbox.Traffic{MaskHost: tc.mask}).HostFor(8080); got != tc.want {
				t.Errorf("host = %q, want %q", got, tc.want)
			}
		})
	}
}

func maskSpec(mask string) sandbox.Spec {
	return sandbox.Spec{Traffic: sandbox.Traffic{MaskHost: mask}}.Normalize(sandbox.Offer{})
}

// FuzzMaskHost: what is accepted is one Host for whoever reads it.
func FuzzMaskHost(f *testing.F) {
	for _, s := range []string{"localhost", "a:${PORT}", "[::1]:80", "a\r\nb", "::", "[fe80::1%25eth0]", ":80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, mask string) {
		if maskSpec(mask).Validate(sandbox.Offer{Walls: []string{sandbox.DefaultIsolation}}) != nil || mask == "" {
			return
		}
		host := sandbox.Traffic{MaskHost: mask}.HostFor(65535)
		var wire strings.Builder
		r := httptest.NewRequest(http.MethodGet, "http://x/", nil)
		r.Host = host
		if err := r.Write(&wire); err != nil {
			t.Fatalf("host %q can't be sent: %v", host, err)
		}
		if !strings.Contains(wire.String(), "\r\nHost: "+host+"\r\n") {
			t.Errorf("host %q was sent as %q", host, wire.String())
		}
	})
}

// TestTrafficToken: a restricted sandbox has one of its own for as long as it
// is there, and the fake instance, which finds fault where it is
// told, is not.
func TestTrafficToken(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		if sb := create(t, d, sandbox.Spec{Name: "open"}); sb.TrafficToken != "" {
			t.Errorf("open: token %q, want none", sb.TrafficToken)
		}
		closed := sandbox.Spec{Name: "closed", Traffic: sandbox.Traffic{Restricted: true}}
		sb := create(t, d, closed)
		if len(sb.TrafficToken) != 64 || sb.TrafficToken == sb.Token {
			t.Errorf("token %q beside %q, want one of its own", sb.TrafficToken, sb.Token)
		}
		if _, err := d.Stop(t.Context(), ann, sb.ID); err != nil {
			t.Fatal(err)
		}
		again, err := d.Start(t.Context(), ann, sb.ID)
		if err != nil || again.TrafficToken != sb.TrafficToken {
			t.Errorf("after a start: %v, %v; want the same token", again, err)
		}
		closed.Name = "other"
		if other := create(t, d, closed); other.TrafficToken == sb.TrafficToken {
			t.Error("two sandboxes have the same token")
		}
	})
}

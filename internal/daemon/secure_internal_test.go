package daemon

import "testing"

// The relay beside a host's pipes is looked for at ws://.
func TestBoxSecure(t *testing.T) {
	const local, everywhere = "127.0.0.1:5410", "0.0.0.0:5410"
	piped, asked := &BoxPipe{}, &BoxPipe{TLS: true}
	for _, tt := range []struct {
		name string
		box  Box
		want bool
	}{
		{"no-certificate", Box{Listen: local}, false},
		{"no-address", Box{TLSCert: "/c"}, false},
		{"a-certificate", Box{Listen: local, TLSCert: "/c"}, true},
		{"beside-pipes", Box{Listen: local, TLSCert: "/c", Pipes: piped}, false},
		{"beside-pipes-by-name", Box{Listen: "localhost:5410", TLSCert: "/c", Pipes: piped}, false},
		{"beside-pipes-and-asked-for", Box{Listen: local, TLSCert: "/c", Pipes: asked}, true},
		{"beside-pipes-for-everyone", Box{Listen: everywhere, TLSCert: "/c", Pipes: piped}, true},
	} {
		if got := tt.box.secure(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

package cli_test

import "testing"

// On a terminal, what an answer lets through is shown and asked about first.
func TestApproveAsks(t *testing.T) {
	d := startFake(t)
	for _, tt := range []struct{ say, want string }{{"n\n", "no yes"}, {"y\n", "allowed: POST https://api.example.com/v1/items/7"}} {
		s := onTerminal(t, d, nil, "approve", "allow", "7")
		s.expect("(rule api, sandbox web)")
		s.expect("allow this? [y/N] ")
		if _, err := s.tty.WriteString(tt.say); err != nil {
			t.Fatal(err)
		}
		s.expect(tt.want)
	}
}

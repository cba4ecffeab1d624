package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func TestSplitWords(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
		fails    bool
	}{
		{name: "plain", in: "  a b\tc ", want: []string{"a", "b", "c"}},
		{name: "single", in: `a 'b  "c" \ $x'd ''`, want: []string{"a", `b  "c" \ $xd`, ""}},
		{name: "double", in: `"a 'b' \"c\" \$ \x" d`, want: []string{`a 'b' "c" $ \x`, "d"}},
		{name: "backslash", in: `a\ b \'c \|`, want: []string{"a b", "'c", "|"}},
		{name: "empty", in: "  "},
		{name: "open-single", in: "'a", fails: true},
		{name: "open-double", in: `"a`, fails: true},
		{name: "last-backslash", in: `a\`, fails: true},
		{name: "variable", in: "a $x", fails: true},
		{name: "quoted-variable", in: `a "$x"`, fails: true},
		{name: "pipe", in: "a | b", fails: true},
		{name: "glob", in: "a *.b", fails: true},
		{name: "home", in: "~/a", fails: true},
		{name: "two-lines", in: "a\nb", fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := cli.SplitWords(tt.in)
			if (err != nil) != tt.fails {
				t.Fatalf("error %v, want one: %t", err, tt.fails)
			}
			if diff := cmp.Diff(tt.want, got); !tt.fails && diff != "" {
				t.Errorf("words (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzSplitWords holds that words which are quoted come back as they were.
func FuzzSplitWords(f *testing.F) {
	f.Add("a", "b c")
	f.Add("it's", "$x|\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := cli.SplitWords(shell.Word(a) + " " + shell.Word(b))
		if err != nil || !cmp.Equal(got, []string{a, b}) {
			t.Errorf("of %q and %q became %q, %v", a, b, got, err)
		}
		_, _ = cli.SplitWords(a) // returns, whatever it is
	})
}

// TestSecretPrompt holds that what is typed is not shown, and that Ctrl-C
// gives the terminal back as it was.
func TestSecretPrompt(t *testing.T) {
	d := startFake(t)
	s := onTerminal(t, d, nil, "secret", "add", "TOKEN")
	s.expect("value of TOKEN: ")
	waitEcho(t, s, false)
	s.send("hunter2\n")
	code, rest := s.wait()
	if code != 0 || strings.Contains(rest, "hunter2") || !strings.Contains(rest, "TOKEN") {
		t.Errorf("exit code %d, and it shows %q", code, rest)
	}
	if got := d.secretValue("TOKEN"); got != "hunter2" {
		t.Errorf("the daemon was sent %q", got)
	}

	s = onTerminal(t, d, nil, "secret", "rotate", "TOKEN")
	s.expect("value of TOKEN: ")
	waitEcho(t, s, false)
	s.send("\x03")
	waitEcho(t, s, true)
	if code, rest := s.wait(); code == 0 {
		t.Errorf("exit code 0 after Ctrl-C: %q", rest)
	}
	if got := d.secretValue("TOKEN"); got != "hunter2" {
		t.Errorf("after Ctrl-C the secret is %q", got)
	}

	s = onTerminal(t, d, nil, "secret", "rotate", "TOKEN")
	s.expect("value of TOKEN: ")
	waitEcho(t, s, false)
	s.send("\n")
	if code, rest := s.wait(); code != 125 || !strings.Contains(rest, "no value was given") {
		t.Errorf("an empty value: exit code %d, %q", code, rest)
	}
}

func TestRefusedText(t *testing.T) {
	a, b, bad := netlog.Refused{Host: "a.example", Count: 2, Flag: "--allow a.example"},
		netlog.Refused{Host: "b.example", Count: 1, Flag: "--allow b.example --allow b.example:22"},
		netlog.Refused{Host: "c\x1b[2J", Count: 1}
	tests := []struct {
		name    string
		refused []netlog.Refused
		others  int
		none    bool
		next    bool
		in      string
		want    string
	}{
		{"none", nil, 0, false, false, "", ""},
		{"one", []netlog.Refused{a}, 0, false, false, "", "refused: a.example; to allow: --allow a.example"},
		{"several", []netlog.Refused{a, b, bad}, 3, false, false, "", "refused: a.example, b.example, c\x1b[2J, 3 others; to allow: --allow a.example --allow b.example --allow b.example:22"},
		{"no-flag", []netlog.Refused{bad}, 1, false, false, "", "refused: c\x1b[2J, 1 other"},
		{"stays", []netlog.Refused{a}, 0, false, false, "web", "refused: a.example; to allow: carboy set web --add --allow a.example"},
		{"no-network", []netlog.Refused{a}, 0, true, false, "", "a.example was asked for; to allow: --allow a.example"},
		{"no-network-two", []netlog.Refused{a, a}, 0, true, false, "", "a.example, a.example were asked for; to allow: --allow a.example"},
		{"no-network-stays", []netlog.Refused{a}, 0, true, false, "web", "a.example was asked for; to allow: carboy set web --allow a.example && carboy stop web && carboy start web"},
		{"service", []netlog.Refused{{Host: "gate.carboy.internal", Flag: "--allow service:NAME"}}, 0, true, false, "web", "gate.carboy.internal was asked for; to allow: carboy set web --allow service:NAME && carboy stop web && carboy start web"},
		{"next-start", []netlog.Refused{{Host: "a.example"}}, 0, true, true, "web", "a.example was asked for; allowed from its next start on: carboy stop web && carboy start web"},
		{"next-start-and-more", []netlog.Refused{a, {Host: "b.example"}}, 0, true, true, "web", "a.example, b.example were asked for; to allow: carboy set web --allow a.example && carboy stop web && carboy start web"},
		{"why", []netlog.Refused{{Host: "p.example", Count: 1, Why: "no such name"}}, 0, false, false, "web", "refused: p.example (no such name)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := cli.RefusedText(tt.refused, tt.others, tt.none, tt.next, tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The end of a run proposes nothing that is closed, and nothing for a host that
// its policy is about.
func TestProposable(t *testing.T) {
	rules, err := policy.ParseAllow("https://known.example")
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Compile(policy.Policy{Rules: rules}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, host, flag, want string }{
		{"host", "a.example", "--allow a.example", "--allow a.example"},
		{"public-address", "1.1.1.1", "--allow 1.1.1.1:22", "--allow 1.1.1.1:22"},
		{"ports", "a.example", "--allow a.example --allow a.example:22", "--allow a.example --allow a.example:22"},
		{"metadata", "169.254.169.254", "--allow 169.254.169.254", ""},
		{"private", "10.0.0.5", "--allow 10.0.0.5:22", ""},
		{"loopback-6", "::1", "--allow [::1]:22", ""},
		{"udp-to-private", "192.168.1.1", "--allow udp://192.168.1.1:53", ""},
		{"address-of-a-name", "b.example", "--allow b.example --allow 10.0.0.5", "--allow b.example"},
		{"has-rules", "known.example", "--allow known.example:22", ""},
		{"nothing", "a.example", "", ""},
		{"gate", "gate.carboy.internal", "", "--allow service:NAME"},
		{"service", "gate.carboy.internal", "--allow service:docs", "--allow service:docs"},
		{"preset", "api.openai.com", "--allow api.openai.com", "--allow openai"},
		{"preset-port", "api.openai.com", "--allow api.openai.com:8443", "--allow api.openai.com:8443"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := cli.Proposable(netlog.Refused{Host: tt.host, Flag: tt.flag}, set); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	serves, err := policy.Compile(policy.Policy{Services: []string{"docs"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []netlog.Refused{{Host: "gate.carboy.internal"}, {Host: "gate.carboy.internal", Why: "docs: no program serves it at the moment"}} {
		if got := cli.Proposable(r, serves); got != "" {
			t.Errorf("%+v, with a service: %q, want nothing", r, got)
		}
	}
	if got := cli.Proposable(netlog.Refused{Host: "a.example", Flag: "--allow a.example"}, nil); got != "" {
		t.Errorf("without a policy: %q, want nothing", got)
	}
}

// waitEcho waits until the terminal shows what is typed, or does not.
func waitEcho(t *testing.T, s *terminal, want bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for (s.mode().Lflag&unix.ECHO != 0) != want {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the terminal's echo is %t for too long", !want)
		}
	}
}

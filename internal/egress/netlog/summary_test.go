package netlog_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
)

func TestSummary(t *testing.T) {
	record := func(code, protocol, host, address string) netlog.Record {
		return netlog.Record{Verdict: netlog.Deny, Code: code, Protocol: protocol, Host: host, Address: address}
	}
	question := func(kind string) netlog.Record {
		r := record("not_allowed", "dns", "a.example", "")
		r.Method = kind
		return r
	}
	answered := func(result string) netlog.Record {
		return netlog.Record{Verdict: netlog.Allow, Protocol: "dns", Method: "A", Host: "a.example", Result: result}
	}
	const sink = "192.0.0.3:"
	tests := []struct {
		name string
		in   netlog.Record
		want []netlog.Refused
	}{
		{"https", record("not_allowed", "https", "a.example", sink+"443"), []netlog.Refused{{Host: "a.example", Count: 1, Flag: "--allow a.example"}}},
		{"http", record("not_allowed", "http", "A.example.", sink+"80"), []netlog.Refused{{Host: "a.example", Count: 1, Flag: "--allow a.example"}}},
		{"other-port", record("not_allowed", "tcp", "a.example", sink+"5432"), []netlog.Refused{{Host: "a.example", Count: 1, Flag: "--allow a.example:5432"}}},
		{"udp", record("not_allowed", "udp", "a.example", "192.0.2.1:123"), []netlog.Refused{{Host: "a.example", Count: 1, Flag: "--allow udp://a.example:123"}}},
		{"dns", record("not_allowed", "dns", "a.example", ""), []netlog.Refused{{Host: "a.example", Count: 1, Flag: "--allow a.example"}}},
		{"question-for-an-address", question("AAAA"), []netlog.Refused{{Host: "a.example", Count: 1, Flag: "--allow a.example"}}},
		{"question-for-text", question("TXT"), nil},
		{"by-number", record("not_resolved", "tcp", "", "192.0.2.1:22"), []netlog.Refused{{Host: "192.0.2.1", Count: 1, Flag: "--allow 192.0.2.1:22"}}},
		{"by-number-6", record("not_resolved", "tcp", "", "[2001:db8::1]:22"), []netlog.Refused{{Host: "2001:db8::1", Count: 1, Flag: "--allow [2001:db8::1]:22"}}},
		{"mapped", record("not_resolved", "tcp", "", "[::ffff:192.0.2.1]:443"), []netlog.Refused{{Host: "192.0.2.1", Count: 1, Flag: "--allow 192.0.2.1"}}},
		{"closed-address-of-a-name", record("closed_address", "https", "a.example", "10.0.0.1:443"), []netlog.Refused{{Host: "a.example", Count: 1, Why: "closed_address"}}},
		{"closed-address", record("closed_address", "http", "", "169.254.169.254:80"), []netlog.Refused{{Host: "169.254.169.254", Count: 1, Why: "closed_address"}}},
		{"closed-address-unknown", record("closed_address", "dns", "a.example", ""), []netlog.Refused{{Host: "a.example", Count: 1, Why: "closed_address"}}},
		{"sink-without-a-name", record("not_allowed", "tcp", "", sink+"22"), nil},
		{"denied-by-a-rule", record("denied", "https", "a.example", sink+"443"), []netlog.Refused{{Host: "a.example", Count: 1, Why: "denied"}}},
		{"request", record("request_refused", "https", "a.example", "192.0.2.1:443"), []netlog.Refused{{Host: "a.example", Count: 1, Why: "request_refused"}}},
		{"for-what-was-in-it", record("placeholder_misplaced", "https", "a.example", "192.0.2.1:443"), []netlog.Refused{{Host: "a.example", Count: 1, Why: "placeholder_misplaced"}}},
		{"for-the-shell", record("not_allowed", "dns", "a.example;rm -rf", ""), []netlog.Refused{{Host: "a.example;rm -rf", Count: 1}}},
		{"for-the-terminal", record("not_allowed", "dns", "\x1b[2J.example", ""), []netlog.Refused{{Host: "\x1b[2j.example", Count: 1}}},
		{"like-a-flag", record("not_allowed", "dns", "--network", ""), []netlog.Refused{{Host: "--network", Count: 1}}},
		{"no-network", record("no_network", "dns", "a.example", ""), []netlog.Refused{{Host: "a.example", Count: 1, Flag: "--allow a.example"}}},
		{"no-network-to-the-gate", record("no_network", "dns", "gate.carboy.internal", ""), []netlog.Refused{{Host: "gate.carboy.internal", Count: 1}}},
		{"no-such-name", answered("NXDOMAIN"), []netlog.Refused{{Host: "a.example", Count: 1, Why: "no such name"}}},
		{"name", answered("NOERROR 192.0.2.1"), nil},
		{
			"reason",
			netlog.Record{Verdict: netlog.Deny, Code: "closed_address", Protocol: "dns", Host: "a.example", Reason: "a.example is at 10.0.0.1, which is closed; only a rule opens it"},
			[]netlog.Refused{{Host: "a.example", Count: 1, Why: "at 10.0.0.1, which is closed"}},
		},
		{"allowed", netlog.Record{Verdict: netlog.Allow, Protocol: "https", Host: "a.example"}, nil},
		{"nobody-answered", record("upstream_failed", "https", "a.example", "192.0.2.1:443"), nil},
		{"no-host", record("not_allowed", "icmp", "", ""), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, others := netlog.Summary([]netlog.Record{tt.in})
			if diff := cmp.Diff(tt.want, got); diff != "" || others != 0 {
				t.Errorf("and %d others (-want +got)\n%s", others, diff)
			}
		})
	}
}

// A name that has one kind of address is there, whatever was said of the other.
func TestSummaryOfNames(t *testing.T) {
	no := netlog.Record{Verdict: netlog.Allow, Protocol: "dns", Method: "AAAA", Host: "a.example", Result: "NXDOMAIN"}
	yes := no
	yes.Method, yes.Result = "A", "NOERROR 192.0.2.1"
	for _, in := range [][]netlog.Record{{no, yes}, {yes, no}} {
		if got, others := netlog.Summary(in); len(got) != 0 || others != 0 {
			t.Errorf("got %+v and %d others", got, others)
		}
	}
}

func TestSummaryOfMany(t *testing.T) {
	var in []netlog.Record
	add := func(n int, r netlog.Record) {
		for range n {
			in = append(in, r)
		}
	}
	dns := deny("b.example")
	dns.Protocol, dns.Address = "dns", ""
	tcp := deny("b.example")
	tcp.Protocol, tcp.Address = "tcp", "192.0.0.3:9000"
	counted := deny("a.example")
	counted.Count = 40
	add(3, dns)
	add(2, tcp)
	add(1, counted)
	for i := range 1500 {
		add(1, deny(fmt.Sprintf("%04d.example", i)))
	}
	got, others := netlog.Summary(in)
	if len(got) != netlog.MaxRefused || others != 1502-netlog.MaxRefused {
		t.Errorf("%d are named, and %d others", len(got), others)
	}
	want := []netlog.Refused{{Host: "a.example", Count: 40, Flag: "--allow a.example"}, {Host: "b.example", Count: 5, Flag: "--allow b.example:9000"}}
	if diff := cmp.Diff(want, got[:2]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

package bottle_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/test/named"
)

// seed are the cases of bot-bottle's tests of provisioning.
var seed = []string{
	"test_egress_ca_always_installed", "test_dies_when_egress_cert_missing",
	"test_retries_on_sigkill", "test_no_retry_on_success", "test_no_retry_on_other_error",
	"test_noop_when_no_cwd_and_no_git_entries", "test_writes_gitconfig_with_ip_port_form_for_smolmachines",
	"test_git_gate_uses_http_daemon_for_smolmachines",
	"test_noop_when_no_git_user", "test_sets_name_and_email_as_node", "test_name_only", "test_email_only",
}

// TestSeed: each case has its row in the table of conformance, in its order, and each test that a row names
// is there and has the case's name.
func TestSeed(t *testing.T) {
	raw, err := os.ReadFile("../../docs/conformance/bottle.md")
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(test_\\w+)` \\| (done|differs) \\| (.+) \\|$").FindAllStringSubmatch(string(raw), -1) {
		cases = append(cases, row[1])
		tests := regexp.MustCompile("`internal/(\\w+)\\.(Test\\w+)/(\\w+)`").FindAllStringSubmatch(row[3], -1)
		if len(tests) == 0 {
			t.Errorf("%s: no test is named", row[1])
		}
		for _, n := range tests {
			if "test_"+n[3] != row[1] || !named.Exists(t, "../"+n[1], n[2], n[3]) {
				t.Errorf("%s: there is no test %s", row[1], n[0])
			}
		}
	}
	if !slices.Equal(cases, seed) {
		t.Errorf("rows %q, want %q", cases, seed)
	}
}

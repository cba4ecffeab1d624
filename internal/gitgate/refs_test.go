package gitgate_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
)

// TestLongName: names that git's files or a line could not hold are refused.
func TestLongName(t *testing.T) {
	for name, ok := range map[string]bool{
		strings.Repeat("a", 240):    true,
		strings.Repeat("a", 241):    false,
		strings.Repeat("aa/", 300):  true,
		strings.Repeat("aa/", 400):  false,
		strings.Repeat("a/", 30000): false,
	} {
		line := strings.Repeat("0", 40) + " " + strings.Repeat("1", 40) + " refs/heads/" + name + "x\x00report-status"
		if name[len(name)-1] == 'a' {
			line = strings.Replace(line, "x\x00", "\x00", 1)
		}
		_, err := gitgate.OrderForTest(bytes.NewReader(pktline.AppendFlush(pktline.Append(nil, line))))
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", len(name), err)
		}
	}
}

// TestLockName: no remote has the name of the gate's own file.
func TestLockName(t *testing.T) {
	_, err := gitgate.New(gitgate.Config{Dir: t.TempDir(), Remotes: []gitgate.Remote{{Name: "lock", URL: "https://up.example/x"}}})
	if err == nil || !strings.Contains(err.Error(), `remote "lock"`) {
		t.Errorf("%v", err)
	}
}

// TestBase: an address stands in brackets, with a port or without.
func TestBase(t *testing.T) {
	for _, url := range []string{"https://[::1]/x", "https://[::1]:8443/x", "https://up.example/x", "https://up.example:4430/x"} {
		if got, err := gitgate.BaseForTest(url); got != url || err != nil {
			t.Errorf("%s: %s, %v", url, got, err)
		}
	}
}

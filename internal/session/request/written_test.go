package request_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/session/request"
)

func TestWritten(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a\xffb": "a\ufffdb", strings.Repeat("é", 400): strings.Repeat("é", 400),
		strings.Repeat("é", 401): strings.Repeat("é", 400), strings.Repeat("x", 400) + "\xff": strings.Repeat("x", 400),
	} {
		if got := request.Written(text); got != want {
			t.Errorf("Written(%.20q) = %.20q, of %d bytes", text, got, len(got))
		}
	}
}

func TestEnvNames(t *testing.T) {
	if got := request.EnvNames(map[string]string{"B": "s3cret", "A": "s3cret"}); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("EnvNames = %q", got)
	}
	if got := request.EnvNames(nil); len(got) != 0 {
		t.Errorf("EnvNames = %q", got)
	}
	many := map[string]string{strings.Repeat("0", 1<<20): ""}
	for i := range 1000 {
		many[fmt.Sprintf("A%03d", i)] = ""
	}
	got := request.EnvNames(many)
	if len(got) != 65 || got[0] != strings.Repeat("0", 64) || got[63] != "A062" || got[64] != "(and 937 more)" {
		t.Errorf("EnvNames = %q", got)
	}
}

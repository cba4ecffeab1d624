package scan_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/gitgate/scan"
)

func known(name, value string) scan.Known {
	return scan.Known{Name: name, Value: []byte(value), Find: inject.NewFinder(value).Find}
}

// TestKnown: a value that is known is found as it is and in each encoding, however short it is and whatever stands around
// it, where no rule knows its form. It is found no more once it is forgotten.
func TestKnown(t *testing.T) {
	for _, value := range []string{"pa ssw0rd", "correct horse battery staple", "Zm9v+/Zm9v==x"} {
		r := rules(t).With([]scan.Known{known("TOKEN", value), known("SHORT", "abc")})
		hexed := hex.EncodeToString([]byte(value))
		for name, text := range map[string][]byte{
			"plain": []byte("x\n" + value + "y"), "UTF-16": wide("x\n"+value, little), "gzip": gz(t, []byte("x\n"+value)), "in-base64-in-gzip": gz(t, b64([]byte(value))),
			"hexadecimal": []byte("x\n" + hexed), "upper": []byte("x\n" + strings.ToUpper(hexed)), "base64-alone": []byte("x\n" + base64.RawURLEncoding.EncodeToString([]byte(value))),
			"one-escape": []byte("x\n" + strings.Replace(value, "a", "\\u0061", 1)), "one-percent": []byte("x\n" + strings.Replace(value, "r", "%72", 1)),
			"narrow": wrapped(b64([]byte("x"+value)), 7, "\n"), "entities": []byte(entities(value)),
			"base64-0": b64([]byte(value + "!")), "base64-1": b64([]byte("a" + value + "!")), "base64-2": b64([]byte("ab" + value + "!")),
		} {
			res := r.Search(text, "")
			if len(res.Hits) != 1 || res.Hits[0].Rule != "of this sandbox: TOKEN" {
				t.Errorf("%s of %q: %+v", name, value, res)
			}
		}
		if res := r.Search([]byte("x abc "+value[:len(value)-1]), ""); len(res.Hits) > 0 {
			t.Errorf("a part of it, and what is too short: %+v", res)
		}
		r.Forget()
		if res := r.Search([]byte(value), ""); len(res.Hits) > 0 {
			t.Errorf("once it is forgotten: %+v", res)
		}
	}
	if res := rules(t).Search([]byte("pa ssw0rd"), ""); len(res.Hits) > 0 {
		t.Errorf("others know it: %+v", res)
	}
}

// entities is a text in HTML's numbers.
func entities(text string) string {
	var b strings.Builder
	for _, c := range text {
		fmt.Fprintf(&b, "&#%d;", c)
	}
	return b.String()
}

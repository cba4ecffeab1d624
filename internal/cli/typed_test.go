package cli_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

func TestTypedBuild(t *testing.T) {
	const hint = "to allow: carboy template build --allow npm --allow x.example"
	for _, tt := range []struct {
		name  string
		hint  string
		typed []string
		want  string
	}{
		{
			"as-typed", hint,
			[]string{"template", "build", "--name", "web", "--build-arg", "A=it's b", "my dir"},
			`to allow: carboy template build --allow npm --allow x.example --name web --build-arg 'A=it'\''s b' 'my dir'`,
		},
		{
			"off", hint,
			[]string{"template", "build", "--network", "off", "--name=web", "."},
			"to allow: carboy template build --allow npm --allow x.example --name=web .",
		},
		{
			"off-in-one", hint,
			[]string{"template", "build", ".", "--network=off", "--name", "build"},
			"to allow: carboy template build --allow npm --allow x.example . --name build",
		},
		{"other-hint", "carboy ls", []string{"template", "build", "."}, "carboy ls"},
		{"nothing-typed", hint, nil, hint},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := cli.TypedBuild(tt.hint, tt.typed); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

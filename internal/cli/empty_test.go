package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

// TestEmptyTexts gives "" to every flag of every command that takes a text.
func TestEmptyTexts(t *testing.T) {
	var flags int
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if typ := f.Value.Type(); !strings.HasPrefix(typ, "string") || f.Name == "reason" {
				return
			}
			flags++
			var stderr bytes.Buffer
			args := append(append([]string(nil), path...), "--"+f.Name+"=")
			code := cli.Main(context.Background(), args, cli.Env{Stdout: &stderr, Stderr: &stderr})
			want := strings.Join(path, " ") + ": --" + f.Name + ": the value is empty"
			if code != 125 || !strings.Contains(stderr.String(), want) {
				t.Errorf("carboy %s: code %d, %s, want %q", strings.Join(args, " "), code, &stderr, want)
			}
		})
		for _, c := range cmd.Commands() {
			look(c)
		}
	}
	look(cli.Root())
	if flags < 60 {
		t.Errorf("%d flags take a text, which can't be all", flags)
	}
}

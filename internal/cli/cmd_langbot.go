package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) langbotCommand() *cobra.Command {
	cmd := a.nounCommand("langbot", "Be the Box runtime of LangBot, a platform for chat bots", "carboy langbot serve")
	cmd.AddCommand(a.langbotServeCommand())
	return setHelp(cmd, docs{
		examples: []string{"carboy langbot serve"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) langbotServeCommand() *cobra.Command {
	var o LangBotOptions
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run the daemon in the foreground, as LangBot's Box runtime",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			return a.langbotServe(ctx, o)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.Listen, "listen", "", "`HOST:PORT` serve on that TCP address (default 127.0.0.1:5410)")
	fs.BoolVar(&o.Stdio, "stdio", false, "speak over standard input and output as well, and leave when they end")
	fs.StringVar(&o.ControlTokenFile, "control-token-file", "", "`FILE` ask for the token in FILE; without one only this machine may connect")
	fs.StringVar(&o.TLSCert, "tls-cert", "", "`FILE` speak TLS, with the certificate in FILE: wss:// instead of ws://")
	fs.StringVar(&o.TLSKey, "tls-key", "", "`FILE` the certificate's key, in FILE")
	fs.StringVar(&o.Profile, "profile", "", "`NAME` what sessions get")
	fs.StringVar(&o.Isolation, "isolation", "", "`WALL` the wall of sessions: gvisor or process (default gvisor)")
	fs.StringVar(&o.HostRoot, "host-root", "", "`DIR` keep workspaces in DIR of this machine")
	fs.StringArrayVar(&o.MountRoots, "mount-root", nil, "`DIR` allow directories below DIR to be named (may be repeated)")
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `LangBot connects to it by box.runtime.endpoint, ws://HOST:5410, or wss://HOST:5410
where it has a certificate. It is the one daemon of this home: carboy session ls shows
LangBot's sessions, and they outlive it. Flags stand above the section "box" of
config.json. Of LangBot's environment
LANGBOT_BOX_CONTROL_TOKEN, LANGBOT_BOX_TRUSTED_INSTANCE_UUID and LANGBOT_BOX_CONFIG
are taken.`,
		examples: []string{
			"carboy langbot serve",
			"carboy langbot serve --listen 0.0.0.0:5410 --control-token-file token",
			"carboy langbot serve --listen 0.0.0.0:5410 --control-token-file token --tls-cert cert.pem --tls-key key.pem",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) langbotServe(ctx context.Context, o LangBotOptions) error {
	for _, p := range append([]*string{&o.HostRoot, &o.ControlTokenFile, &o.TLSCert, &o.TLSKey}, pointers(o.MountRoots)...) {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return usage.Errorf("%s: %v", shell.Word(*p), err)
		}
		*p = abs
	}
	return a.env.Serve(ctx, ServeOptions{LangBot: &o})
}

func pointers(all []string) (out []*string) {
	for i := range all {
		out = append(out, &all[i])
	}
	return out
}

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/approval/desk"
	"github.com/carboy-sandbox/carboy/internal/approval/webhook"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/store"
)

// Approvals is how people are told of what sandboxes ask.
type Approvals struct {
	// Webhook is a URL that is told of each question and of what became of it; "":
	// none. It decides nothing.
	Webhook string `json:"webhook"`
	// WebhookSecretFile has the secret that what is sent there is signed with.
	WebhookSecretFile string `json:"webhook_secret_file"`
}

const maxHookSecret = 4096

// eventApproval is the type of a line about a question in a sandbox's log.
const eventApproval = "approval"

// hook opens the webhook of the configuration; nil: there is none.
func (a Approvals) hook(d *daemon) (*webhook.Hook, error) {
	if a.Webhook == "" && a.WebhookSecretFile == "" {
		return nil, nil
	}
	bad := func(err error) error {
		e := sandbox.Errorf(sandbox.Invalid, "approvals: webhook: %v", err)
		e.Err = err
		return e.WithHint(`"approvals": {"webhook": "https://example.com/hook", "webhook_secret_file": "/etc/carboy/hook.key"}`)
	}
	var secret []byte
	if a.WebhookSecretFile != "" {
		f, err := home.OpenTrusted(a.WebhookSecretFile)
		if err != nil {
			return nil, bad(err)
		}
		defer f.Close()
		if secret, err = io.ReadAll(io.LimitReader(f, maxHookSecret+1)); err != nil {
			return nil, bad(err)
		}
		if secret = bytes.TrimSpace(secret); len(secret) > maxHookSecret {
			return nil, bad(fmt.Errorf("a secret of more than %d bytes", maxHookSecret))
		}
	}
	if err := webhook.Check(a.Webhook, secret); err != nil {
		return nil, bad(err)
	}
	return webhook.New(a.Webhook, secret, d.log), nil
}

// asking is what a daemon has for what sandboxes ask.
type asking struct {
	desk *desk.Desk
	hook *webhook.Hook // nil: none
	tell func(ctx context.Context, sandboxID string, a approval.Answer) error
}

// openAsking opens the desk. What gates are told goes by the network, which is opened
// with it.
func (d *daemon) openAsking(db *store.SQLite) (*asking, error) {
	a := &asking{}
	var err error
	if a.hook, err = d.cfg.Approvals.hook(d); err != nil {
		return nil, err
	}
	o := desk.Options{
		Store: db, Log: d.log,
		Answer: func(ctx context.Context, id string, ans approval.Answer) error { return a.tell(ctx, id, ans) },
		Note: func(ctx context.Context, owner, id, text string) {
			d.noteOf(ctx, owner, id, sandbox.Event{Type: eventApproval, Message: text})
		},
	}
	if a.hook != nil {
		o.Tell = a.hook.Tell
	}
	a.desk = desk.New(o)
	return a, nil
}

// noteOf writes a line into a sandbox's log.
func (d *daemon) noteOf(ctx context.Context, owner, id string, ev sandbox.Event) {
	if err := d.manager.Record(ctx, sandbox.Caller{Owner: owner}, id, ev); err != nil {
		d.log.Info(ev.Type, "sandbox", id, "what", ev.Message, "err", err) // the sandbox may have gone
	}
}

func (a *asking) close() {
	if a.hook != nil {
		a.hook.Close()
	}
}

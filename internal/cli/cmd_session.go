package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

func (a *app) sessionCommand() *cobra.Command {
	cmd := a.nounCommand("session", "Keep sandboxes for the people and rooms of a chat", "carboy session exec --session person_alice -- pwd")
	cmd.AddCommand(
		a.sessionExecCommand(), sessionListing().command(a), a.sessionRmCommand(),
		a.sessionStatusCommand(), a.sessionErrorsCommand(), a.sessionToolsCommand(), a.sessionSkillCommand(),
	)
	return setHelp(cmd, docs{
		long: `A session is a sandbox that goes by a key of your choosing. exec makes it where
there is none; one that nobody used for a while is put to sleep with its files, and
woken by its next command.`,
		examples: []string{
			"carboy session exec --session person_alice -- python3 --version",
			"carboy session ls",
		},
		exits: exitDocsPlain[:],
	})
}

func sessionListing() *listing[sessions.SessionInfo] {
	return &listing[sessions.SessionInfo]{
		noun:  "session",
		short: "List sessions",
		long: `SANDBOX is the sandbox that each is kept in, as carboy inspect takes it. QUOTA says
how that of its workspace holds: hard, by the file system, or soft, by looking.`,
		get:     (*client.Client).Sessions,
		columns: []string{"SESSION", "STATE", "WALL", "NETWORK", "QUOTA", "PROCESSES", "USED", "SANDBOX"},
		row: func(s *sessions.SessionInfo, now time.Time) []string {
			return []string{
				s.SessionID, sessionState(s), s.BackendName, s.Network, quotaText(s),
				runningText(s), console.Ago(s.LastUsedAt, now), s.BackendSessionID,
			}
		},
	}
}

func sessionState(s *sessions.SessionInfo) string {
	switch {
	case s.Asleep:
		return "asleep"
	case s.Active > 0:
		return "busy"
	}
	return "ready"
}

func quotaText(s *sessions.SessionInfo) string {
	if s.WorkspaceQuotaMB == 0 {
		return ""
	}
	return strings.TrimSpace(strconv.Itoa(s.WorkspaceQuotaMB) + "m " + s.Quota)
}

// runningText names the managed processes that run.
func runningText(s *sessions.SessionInfo) string {
	n := 0
	for _, p := range s.Processes {
		if p.Status == sessions.ProcessRunning {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (a *app) sessionRmCommand() *cobra.Command {
	return removal{
		noun:     "session",
		arg:      "SESSION",
		example:  "person_alice",
		short:    "End sessions, and delete what they hold",
		long:     "A workspace that is a directory of this machine, or shared by sessions, stays.",
		remove:   (*client.Client).RemoveSession,
		complete: a.completeSession(),
	}.command(a)
}

// completeSession completes the key of a session.
func (a *app) completeSession() completer {
	return completing(a, (*client.Client).Sessions, func(s *sessions.SessionInfo) string { return s.SessionID })
}

func (a *app) sessionStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "status [flags]",
		Short:             "Show whether sessions can be had, and how many there are",
		Args:              exactArgs(),
		RunE:              a.asking(func(ctx context.Context, svc *client.Client, _ []string) error { return a.sessionStatus(ctx, svc) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{exits: exitDocsPlain[:], examples: []string{"carboy session status", "carboy session status --json"}})
}

func (a *app) sessionStatus(ctx context.Context, svc *client.Client) error {
	st, err := svc.SessionStatus(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(st)
	}
	var t console.Table
	available := "yes"
	if !st.Available {
		available = "no: " + st.ConnectorError
	}
	t.Row("available", available)
	wall := "none"
	if st.Backend.Name != nil {
		wall = *st.Backend.Name
	}
	t.Row("wall", wall)
	t.Row("profile", st.Profile)
	t.Row("sessions", strconv.Itoa(st.ActiveSessions)+" of "+strconv.Itoa(st.Limits.MaxSessions))
	t.Row("processes", strconv.Itoa(st.Processes)+" of "+strconv.Itoa(st.Limits.MaxProcesses))
	idle := "never"
	if st.SessionTTLSec > 0 {
		idle = "after " + (time.Duration(st.SessionTTLSec) * time.Second).String()
	}
	t.Row("idle ones end", idle)
	t.Row("errors", strconv.Itoa(st.RecentErrorCount))
	return t.Write(a.Stdout)
}

func (a *app) sessionErrorsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "errors [flags]",
		Short:             "Show the newest errors of sessions, oldest first",
		Args:              exactArgs(),
		RunE:              a.asking(func(ctx context.Context, svc *client.Client, _ []string) error { return a.sessionErrors(ctx, svc) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:  "The last 50 are kept, until the daemon ends.",
		exits: exitDocsPlain[:], examples: []string{"carboy session errors"},
	})
}

func (a *app) sessionErrors(ctx context.Context, svc *client.Client) error {
	list, err := svc.SessionErrors(ctx)
	if err != nil {
		return err
	}
	return (&listing[sessions.ErrorRecord]{
		columns: []string{"WHEN", "SESSION", "CLASS", "MESSAGE"},
		row: func(e *sessions.ErrorRecord, now time.Time) []string {
			return []string{console.Ago(e.Timestamp, now), e.SessionID, e.Type, e.Message}
		},
	}).show(a, list)
}

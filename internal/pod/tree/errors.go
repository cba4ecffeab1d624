package tree

import (
	"strings"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

func duplicate(name string) error {
	return sandbox.Errorf(sandbox.Conflict, "pod name `%s` is already registered", name).WithHint("choose another name, or stop that pod")
}

func unknown(name string) error {
	return sandbox.Errorf(sandbox.NotFound, "pod `%s` is not registered", name)
}

func segmentHeld(segment string, by record.Pod) error {
	return sandbox.Errorf(sandbox.Conflict, "session %s is already held by pod `%s` at %s", segment, by.Name, by.Socket).
		WithHint("attach to that pod, or stop it")
}

func notStarted(p record.Pod) error {
	what := "is still being started"
	if p.State == record.Ending {
		what = "is being stopped"
	}
	return sandbox.Errorf(sandbox.Conflict, "pod `%s` %s, and can't delegate scope", p.Name, what)
}

func notWithin(spawner string, r scope.Refusal) error {
	err := sandbox.Errorf(sandbox.Invalid, "requested scope `%s` is not within spawner `%s`'s effective scope: %s", scope.Shown(r.Rule.Target), spawner, r.Why)
	if hint := r.Hint(); hint != "" {
		return err.WithHint("%s", hint)
	}
	return err
}

func conflicts(asked scope.Rule, by string, with scope.Rule) error {
	return sandbox.Errorf(sandbox.Conflict, "requested scope `%s` conflicts with pod `%s` rule `%s`", asked.Target, by, with.Target).
		WithHint("stop that pod, or ask for other paths: two pods never write the same one")
}

func beyond(spawner string, err error) error {
	return sandbox.Errorf(sandbox.Invalid, "more is asked for than spawner `%s` has: %s", spawner, strings.ReplaceAll(err.Error(), "\n", "; "))
}

func invalid(err error) error { return sandbox.Errorf(sandbox.Invalid, "%s", err.Error()) }

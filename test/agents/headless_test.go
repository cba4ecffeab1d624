package agents

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
)

// TestHeadless has each agent read, edit and run something, behind each wall and
// by each way in which its user may be known: it ends well, its work can be seen
// and taken, and the key was never inside. It tells the model its environment on
// the way.
func TestHeadless(t *testing.T) {
	for _, a := range agents {
		for _, wall := range walls {
			for _, w := range a.ways {
				t.Run(a.name+"/"+wall+"/"+w.name, func(t *testing.T) { headless(t, &a, &w, wall) })
			}
		}
	}
}

func headless(t *testing.T, a *agent, w *way, wall string) {
	model := fakemodel.NewServer(w.key, scripts...)
	p := newPlace(t, model, w.variables()...)
	for name, text := range w.files {
		p.write(name, text)
	}
	run := p.start(p.agent(a, wall, a.headless(fixPrompt))...)
	p.until("the model is asked for its last words", func() bool { return model.Held() > 0 || run.ended() })
	if run.ended() {
		r := run.wait()
		t.Fatalf("it ended early: %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if told := longestBody(model, a.model(w)); !strings.Contains(told, "LOGNAME=user") {
		t.Error("the agent did not tell the model its environment")
	}
	name := p.names()[0]
	placeholder := placeholderOf(p.ok("exec", name, "--", "env"))
	p.keyIsOutside(wall, name, w.key, placeholder)
	model.Release()
	r := run.wait()
	if r.code != 0 || !strings.Contains(r.stdout, answered) {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	p.asked(a, w)
	p.taken(name)
}

// longestBody is that of the request which told most.
func longestBody(model *fakemodel.Server, host string) (longest string) {
	for _, r := range model.Requests(host) {
		if len(r.Body) > len(longest) {
			longest = string(r.Body)
		}
	}
	return longest
}

// asked checks what the model was asked: by the key, which no body had, in a
// conversation that went on when the environment had been told.
func (p *place) asked(a *agent, w *way) {
	p.t.Helper()
	answeredOnes := 0
	for _, r := range p.model.Requests("") {
		if r.Credential != w.key {
			p.t.Errorf("%s %s%s came with %q", r.Method, r.Host, r.Path, r.Credential)
		}
		if strings.Contains(string(r.Body), w.key) {
			p.t.Errorf("the body of %s %s%s holds the key", r.Method, r.Host, r.Path)
		}
		if r.Method == "POST" && r.Host == a.model(w) && (r.Status == 200 || r.Status == 0) {
			answeredOnes++
		}
	}
	if answeredOnes < 5 {
		p.t.Errorf("the model answered %d requests, want the five of a conversation", answeredOnes)
	}
}

// taken sees the work, takes it, and finds it in the repository.
func (p *place) taken(name string) {
	p.t.Helper()
	if diff := p.ok("diff", name); !strings.Contains(diff, "-helo world\n+hello world\n") || !strings.Contains(diff, "b/out.txt") {
		p.t.Errorf("the diff:\n%s", diff)
	}
	if got := p.read("greet.txt"); got != "helo world\n" {
		p.t.Errorf("the repository was changed before anybody took that: %q", got)
	}
	p.ok("apply", name)
	for _, file := range []string{"greet.txt", "out.txt"} {
		if got := p.read(file); got != "hello world\n" {
			p.t.Errorf("%s is %q once it is applied", file, got)
		}
	}
}

package server_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// The limit of a team holds however many ask at once and by which API, and
// another team is not touched by it.
func TestLimitOfSandboxes(t *testing.T) {
	w := newTeams(t, team.NewBook(team.Limits{}, map[string]team.Limits{acme: {Quota: sandbox.Quota{Sandboxes: 3}}}))
	for who, want := range map[string]int{"acme": 3, "other": 10} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for i := range 10 {
			wg.Go(func() {
				path, body := "/sandboxes", `{"templateID":"base"}`
				if i%2 == 0 {
					path, body = "/v1/sandboxes", `{}`
				}
				resp, got := w.ask(t, who, "POST", path, body)
				mu.Lock()
				defer mu.Unlock()
				switch resp.StatusCode {
				case 201:
					made++
				case 429:
					if resp.Header.Get("Retry-After") == "" || !strings.Contains(got, "no more") {
						t.Errorf("refused with %v %s", resp.Header, got)
					}
				default:
					t.Errorf("create = %d %s", resp.StatusCode, got)
				}
			})
		}
		wg.Wait()
		if made != want {
			t.Errorf("%s made %d, want %d", who, made, want)
		}
	}
}

func TestLimitOfRequests(t *testing.T) {
	slow := team.Limits{RequestsPerSecond: 0.01, Burst: 3, CreatesPerMinute: 1}
	w := newTeams(t, team.NewBook(team.Limits{}, map[string]team.Limits{acme: slow}))
	for range 3 {
		w.want(t, 200, "acme", "GET", "/sandboxes", "")
	}
	for _, path := range []string{"/sandboxes", "/v1/sandboxes"} {
		resp, body := w.ask(t, "acme", "GET", path, "")
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != 429 || err != nil || after < 1 || after > 100 {
			t.Errorf("the fourth request of %s = %d %v %s", path, resp.StatusCode, resp.Header, body)
		}
	}
	// Writes, another key of the team and another team count for themselves.
	w.want(t, 200, "reader", "GET", "/sandboxes", "")
	w.want(t, 201, "acme", "POST", "/sandboxes", `{"templateID":"base"}`)
	if resp, body := w.ask(t, "acme", "POST", "/sandboxes", `{"templateID":"base"}`); resp.StatusCode != 429 || !strings.Contains(body, "minute") {
		t.Errorf("the second create in a minute = %d %s", resp.StatusCode, body)
	}
	for range 10 {
		w.want(t, 200, "other", "GET", "/sandboxes", "")
	}
}

func TestLimitOfSizes(t *testing.T) {
	w := newTeams(t, team.NewBook(team.Limits{Quota: sandbox.Quota{CPUs: 2, Memory: 4 << 30, TTL: 3600e9}}, nil))
	w.want(t, 201, "acme", "POST", "/v1/sandboxes", `{"limits":{"cpus":1},"ttl_ms":60000}`)
	w.want(t, 400, "acme", "POST", "/v1/sandboxes", `{"limits":{"cpus":3},"ttl_ms":60000}`)
	w.want(t, 400, "acme", "POST", "/v1/sandboxes", `{"limits":{"cpus":1}}`)
	w.want(t, 400, "acme", "POST", "/sandboxes", `{"templateID":"base","timeout":7200}`)
	w.want(t, 201, "acme", "POST", "/sandboxes", `{"templateID":"base","timeout":3600}`)
}

func TestTeamMetrics(t *testing.T) {
	w := newTeams(t, team.NewBook(team.Limits{}, nil))
	path := "/teams/" + team.ID(acme) + "/metrics"
	type point struct {
		TimestampUnix       int64
		ConcurrentSandboxes int
		SandboxStartRate    float64
	}
	if got := decode[[]point](t, w.want(t, 200, "acme", "GET", path, "")); len(got) != 0 {
		t.Errorf("metrics of nothing = %v", got)
	}
	for range 3 {
		w.want(t, 201, "acme", "POST", "/sandboxes", `{"templateID":"base"}`)
	}
	got := decode[[]point](t, w.want(t, 200, "acme", "GET", path, ""))
	starts := 0.0
	for _, p := range got {
		starts += p.SandboxStartRate * 15
	}
	if len(got) == 0 || got[len(got)-1].ConcurrentSandboxes != 3 || starts != 3 {
		t.Errorf("metrics = %+v", got)
	}
	for metric, want := range map[string]float64{"concurrent_sandboxes": 3, "sandbox_start_rate": 0} {
		m := decode[struct{ Value float64 }](t, w.want(t, 200, "acme", "GET", path+"/max?metric="+metric, ""))
		if want != 0 && m.Value != want || m.Value <= 0 {
			t.Errorf("max of %s = %v", metric, m)
		}
	}
	w.want(t, 400, "acme", "GET", path+"/max?metric=none", "")
	w.want(t, 400, "acme", "GET", path+"?start=20&end=10", "")
	w.want(t, 400, "acme", "GET", path+"?start=99999999999999", "")
	w.want(t, 400, "acme", "GET", path+"?begin=1", "")
	if got := w.want(t, 200, "acme", "GET", path+"?start=0&end=10", ""); strings.TrimSpace(got) != "[]" {
		t.Errorf("metrics of long ago = %s", got)
	}
}

func TestNode(t *testing.T) {
	w := newTeams(t, nil)
	type view struct {
		ID, Status, Version, Commit string
		SandboxCount                int
		CreateSuccesses             int
		Metrics                     struct {
			CPUCount         int
			MemoryTotalBytes int64
			AllocatedCPU     int
			Disks            []struct{ TotalBytes int64 }
		}
	}
	w.want(t, 201, "acme", "POST", "/sandboxes", `{"templateID":"base"}`)
	list := decode[[]view](t, w.want(t, 200, "admin", "GET", "/nodes", ""))
	if len(list) != 1 || list[0].Status != "ready" || list[0].SandboxCount != 1 || list[0].CreateSuccesses != 1 || list[0].Version != "v1" ||
		list[0].Commit != "c" || list[0].Metrics.CPUCount < 1 || list[0].Metrics.MemoryTotalBytes < 1<<20 ||
		list[0].Metrics.AllocatedCPU < 1 || list[0].Metrics.Disks[0].TotalBytes < 1<<20 {
		t.Fatalf("nodes = %+v", list)
	}
	path := "/nodes/" + list[0].ID
	w.want(t, 200, "admin", "GET", path+"?clusterID="+team.NoID, "")
	w.want(t, 404, "admin", "GET", path+"?clusterID=00000000-0000-4000-8000-000000000000", "")
	w.want(t, 400, "admin", "GET", path+"?clusterID=x", "")
	w.want(t, 204, "admin", "POST", path, `{"status":"draining"}`)
	for _, again := range []bool{false, true} {
		if again {
			w.Restart() // the daemon's end does not end the draining
		}
		if got := w.want(t, 503, "acme", "POST", "/sandboxes", `{"templateID":"base"}`); !strings.Contains(got, "drained") {
			t.Errorf("refused with %s", got)
		}
		w.want(t, 503, "acme", "POST", "/v1/sandboxes", `{}`)
		w.want(t, 200, "acme", "GET", "/sandboxes", "")
		if v := decode[view](t, w.want(t, 200, "admin", "GET", path, "")); v.Status != "draining" || v.SandboxCount != 1 {
			t.Errorf("node = %+v", v)
		}
	}
	w.want(t, 409, "admin", "POST", path, `{"status":"unhealthy"}`)
	w.want(t, 400, "admin", "POST", path, `{"status":"odd"}`)
	w.want(t, 204, "admin", "POST", path, `{"status":"ready"}`)
	w.want(t, 201, "acme", "POST", "/sandboxes", `{"templateID":"base"}`)
}

// The value of a secret is in no answer, and another team has no way to it.
func TestSecretsByName(t *testing.T) {
	w := newTeams(t, team.NewBook(team.Limits{}, map[string]team.Limits{other: {Secrets: 1}}))
	const value, next = "hunter2-hunter2", "swordfish-swordfish"
	var answers []string
	say := func(status int, who, method, path, body string) string {
		t.Helper()
		resp, got := w.ask(t, who, method, path, body)
		answers = append(answers, got, fmt.Sprint(resp.Header))
		if resp.StatusCode != status {
			t.Fatalf("%s %s = %d %s, want %d", method, path, resp.StatusCode, got, status)
		}
		return got
	}
	type view struct {
		SecretID, Name string
		CurrentVersion int
		Metadata       map[string]string
	}
	s := decode[view](t, say(201, "acme", "POST", "/secrets", `{"name":"OpenAI-Key","value":"`+value+`","metadata":{"a":"b"}}`))
	if s.Name != "openai-key" || s.CurrentVersion != 1 || !strings.HasPrefix(s.SecretID, "sec_") || s.Metadata["a"] != "b" {
		t.Errorf("made %+v", s)
	}
	say(409, "acme", "POST", "/secrets", `{"name":"openai-key","value":"`+value+`"}`)
	say(400, "acme", "POST", "/secrets", `{"name":"`+value+` ","value":"x"}`)
	say(400, "acme", "POST", "/secrets", `{"name":"sec_x","value":"`+value+`"}`)
	say(400, "acme", "POST", "/secrets", `{"name":"x","value":"`+value+`","other":1}`)
	say(400, "acme", "POST", "/secrets", `{"name":"x","value":"`+value+`","metadata":{"":"b"}}`)
	say(400, "acme", "POST", "/secrets", `{"name":"x","value":""}`)
	for _, ref := range []string{s.SecretID, "openai-key", "OPENAI-KEY"} {
		say(200, "acme", "GET", "/secrets/"+ref, "")
		say(404, "other", "GET", "/secrets/"+ref, "")
		say(404, "other", "POST", "/secrets/"+ref, `{"value":"`+next+`"}`)
		say(404, "other", "DELETE", "/secrets/"+ref, "")
	}
	if u := decode[view](t, say(200, "acme", "POST", "/secrets/openai-key", `{"value":"`+next+`"}`)); u.CurrentVersion != 2 || u.Metadata["a"] != "b" {
		t.Errorf("updated %+v", u)
	}
	if u := decode[view](t, say(200, "acme", "POST", "/secrets/openai-key", `{"value":"`+next+`","metadata":{}}`)); u.CurrentVersion != 3 || len(u.Metadata) != 0 {
		t.Errorf("updated %+v", u)
	}
	say(201, "acme", "POST", "/secrets", `{"name":"second","value":"`+value+`"}`)
	resp, page := w.ask(t, "acme", "GET", "/secrets?limit=1", "")
	if l := decode[[]view](t, page); len(l) != 1 || l[0].Name != "openai-key" {
		t.Errorf("page = %s", page)
	}
	if l := decode[[]view](t, say(200, "acme", "GET", "/secrets?nextToken="+resp.Header.Get("X-Next-Token"), "")); len(l) != 1 || l[0].Name != "second" {
		t.Errorf("second page = %v", l)
	}
	say(200, "acme", "GET", "/v1/secrets", "")
	say(201, "other", "POST", "/secrets", `{"name":"openai-key","value":"`+value+`"}`)
	say(409, "other", "POST", "/secrets", `{"name":"another","value":"`+value+`"}`)
	say(204, "acme", "DELETE", "/secrets/"+s.SecretID, "")
	say(404, "acme", "GET", "/secrets/openai-key", "")
	say(200, "other", "GET", "/secrets/openai-key", "")
	for _, a := range answers {
		if strings.Contains(a, value) || strings.Contains(a, next) {
			t.Errorf("an answer has the value: %s", a)
		}
	}
}

// A user of the machine is not bounded by what teams are, and makes keys for
// none by E2B's paths: a key would pass for the user.
func TestUsersOfTheMachine(t *testing.T) {
	w := newTeams(t, team.NewBook(team.Limits{Quota: sandbox.Quota{Sandboxes: 1}}, nil))
	for range 3 {
		if resp, body := w.do(t, request{method: "POST", path: "/sandboxes", body: `{"templateID":"base"}`}); resp.StatusCode != 201 {
			t.Fatalf("create = %d %s", resp.StatusCode, body)
		}
	}
	if resp, body := w.do(t, request{method: "POST", path: "/api-keys", body: `{"name":"x"}`}); resp.StatusCode != 403 {
		t.Errorf("make a key = %d %s", resp.StatusCode, body)
	}
	if resp, body := w.do(t, request{method: "GET", path: "/nodes"}); resp.StatusCode != 200 {
		t.Errorf("nodes = %d %s", resp.StatusCode, body)
	}
}

// By its labels the daemon knows the sandboxes of sessions, and removes those
// that no record leads to: no caller gives them.
func TestLabelsOfOurOwn(t *testing.T) {
	w := newTeams(t, team.NewBook(team.Limits{}, nil))
	w.want(t, 201, "acme", "POST", "/v1/sandboxes", `{"name":"box-a","labels":{"session":"k"}}`)
	w.want(t, 400, "acme", "POST", "/v1/sandboxes", `{"name":"box-b","labels":{"carboy.session":"k"}}`)
	w.want(t, 201, "acme", "POST", "/sandboxes", `{"templateID":"base","metadata":{"session":"k"}}`)
	w.want(t, 400, "acme", "POST", "/sandboxes", `{"templateID":"base","metadata":{"carboy.session":"k"}}`)
}

package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/test/long"
)

const modelKey = "sk-ant-R3alK3yThatNeverEnters0123456789"

// clientCase is what a stock client is told to do, and what it has to say.
type clientCase struct {
	name   string
	needs  string // programs; without them the case is skipped
	script string
	want   []string
	fails  bool // it has to exit with another code than 0
	// What servers have to receive from it, and must not: "SITE METHOD PATH",
	// and, of a request that has to come with it, the name of a field.
	arrives, never []string
}

// in runs the case in a sandbox.
func (c clientCase) in(t *testing.T, w *world, h *home, name string) {
	t.Helper()
	needs(t, strings.Fields(c.needs)...)
	w.forget()
	r := h.run(nil, "exec", name, "--", "sh", "-c", c.script)
	all := r.stdout + r.stderr
	for _, secret := range []string{modelKey, realToken} {
		if strings.Contains(all, secret) {
			t.Errorf("it knows a secret: %s", all)
		}
	}
	if (r.code != 0) != c.fails {
		t.Errorf("exit code %d\n%s", r.code, all)
	}
	for _, want := range c.want {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
	for _, request := range c.arrives {
		if !w.came(request) {
			t.Errorf("nothing arrived as %s", request)
		}
	}
	for _, request := range c.never {
		if w.came(request) {
			t.Errorf("what is not allowed arrived as %s", request)
		}
	}
	if strings.Contains(all, pushHung) {
		t.Logf("tried again: %s", all) // make test counts these
	}
	t.Logf("%v", r.took)
}

// clientWorld is a world with the sites that stock clients know by themselves.
func clientWorld(t *testing.T) (w *world, sumKey string) {
	t.Helper()
	needs(t, "git")
	w = newWorld(t)
	w.routeIPv6()
	index, files := pythonSites()
	forge, archives := gitSites(t)
	proxy, sums, sumKey := goSites(t)
	w.sites(worldA, map[string]http.Handler{
		pypiIndex: index, pypiFiles: files, npmRegistry: nodeSite(),
		"github.com": forge, "codeload.github.com": archives,
		goProxy: proxy, goSums: sums, debianArchive: debianSite(t), "api.anthropic.com": modelSite(modelKey), "api.openai.com": socketSite(modelKey),
	})
	w.sites(worldB, map[string]http.Handler{
		"web.example": webSite(), "strange.example": webSite(), "grpc.example": grpcSite(),
	})
	w.sites(worldA6, map[string]http.Handler{"six.example": webSite()})
	return w, sumKey
}

// trustCases fetch a site with every client there is, without a word about
// whom to trust.
func trustCases(site string) []clientCase {
	url := "https://" + site + "/"
	list := []clientCase{
		{name: "curl", needs: "curl", script: "curl -sS -w 'version %{http_version}' " + url, want: []string{"trusted over HTTP/2.0", "version 2"}},
		{name: "wget", needs: "wget", script: "wget -qO- " + url, want: []string{"trusted over HTTP/"}},
		{
			name: "openssl", needs: "openssl",
			script: "echo | openssl s_client -verify_return_error -servername " + site + " -connect " + site + ":443",
			want:   []string{"Verify return code: 0 (ok)"},
		},
		{name: "python", needs: "python3", script: "python3 /clients/fetch.py " + url, want: []string{
			"urllib: trusted over", "requests: trusted over", "kept 1 trusted over", "one connection: True",
		}},
		{name: "node", needs: "node", script: "node /clients/fetch.mjs " + url, want: []string{
			"fetch: trusted over", "https: trusted over", "http2: trusted over",
		}},
		{name: "go", script: "/clients/go-client " + url, want: []string{"HTTP/2.0\ntrusted over HTTP/"}},
	}
	homes, _ := filepath.Glob("/usr/lib/jvm/*/bin/java")
	seen := map[string]bool{}
	for _, java := range homes {
		real, err := filepath.EvalSymlinks(java)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		list = append(list, clientCase{
			name: filepath.Base(filepath.Dir(filepath.Dir(real))), needs: "javac", script: real + " -cp /clients Fetch " + url,
			want: []string{"connection: trusted over HTTP/", "client: HTTP_2 trusted over HTTP/"},
		})
	}
	return list
}

// httpCases are what a site and its clients do besides fetching a page.
func httpCases() []clientCase {
	whole := fmt.Sprintf("%x", sha256.Sum256([]byte(webText)))
	upload := noise(4 << 20)
	sum := fmt.Sprintf("%d %x", len(upload), sha256.Sum256(upload))
	const socket = ` -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=='`
	return []clientCase{
		{name: "redirect", needs: "curl", script: "curl -sSL -w '%{num_redirects} %{url_effective}' https://web.example/redirect", want: []string{"trusted over", "1 https://web.example/"}},
		{name: "gzip", needs: "curl", script: "curl -sS --compressed https://web.example/gzip | sha256sum", want: []string{whole}},
		{name: "range", needs: "curl", script: "curl -sS -w ' %{http_code}' -r 18-24 https://web.example/text", want: []string{"trusted 206"}},
		{name: "kept-connection", needs: "curl", script: "curl -sS --http1.1 -w 'new %{num_connects}\n' https://web.example/ https://web.example/", want: []string{"new 1", "new 0"}},
		{name: "upload", needs: "curl", script: "curl -sS -T /clients/upload https://web.example/upload", want: []string{sum}},
		{name: "upload-in-chunks", needs: "curl", script: "cat /clients/upload | curl -sS --http1.1 -H 'Expect: 100-continue' -v -T - https://web.example/upload", want: []string{sum, "100 Continue"}},
		{name: "ipv6", needs: "curl", script: "curl -sS -6 -w ' from %{remote_ip}' https://six.example/ && /clients/go-client https://six.example/", want: []string{"trusted over", " from " + worldA6, "HTTP/2.0\n"}},
		{name: "number", needs: "curl", fails: true, script: "curl -sS -m 20 http://1/", want: []string{"curl: (7)"}}, // 0.0.0.1: refused, where nothing can answer
		{name: "clear", needs: "curl", script: "curl -sS http://web.example/", want: []string{"trusted over HTTP/1.1"}},
		{name: "websocket-curl", needs: "curl", script: "curl -sS -m 20 -i --http1.1" + socket + " 'https://web.example/ws?once'; true", want: []string{"101 Switching Protocols", "\x81\x09greetings"}},
		{
			name: "events-curl", needs: "curl",
			script: `curl -sSN https://web.example/events | while read -r line; do echo "$line"; case $line in *event*) curl -sS https://web.example/next;; esac; done`,
			want:   []string{"event 0", "event 1", "event 2", "the end"},
		},
		{
			name: "streams-node", needs: "node",
			script: "node --experimental-websocket /clients/stream.mjs https://web.example/events https://web.example/next wss://web.example/ws",
			want:   []string{"event 0\nevent 1\nevent 2\nthe end", "greetings\necho of ünicode"},
		},
		{
			name: "model-events", needs: "node",
			script:  "node /clients/stream.mjs https://api.anthropic.com/v1/messages https://api.anthropic.com/v1/models/next",
			want:    []string{"event 0\nevent 1\nevent 2\nthe end"},
			arrives: []string{"api.anthropic.com POST /v1/messages X-Api-Key"},
		},
		{
			name: "websocket-model", needs: "node", // as Codex does
			script:  "node --experimental-websocket /clients/codex.mjs wss://api.openai.com/v1/responses",
			want:    []string{"response.completed for response.create"},
			arrives: []string{"api.openai.com GET /v1/responses Authorization"},
		},
		{
			name: "model-list", needs: "curl", fails: true, // the same without an upgrade
			script: `curl -sS --fail-with-body -H "Authorization: Bearer $OPENAI_API_KEY" https://api.openai.com/v1/responses`,
			want:   []string{`"code":"request_refused"`}, never: []string{"api.openai.com GET /v1/responses"},
		},
		{
			name: "model-files", needs: "curl", fails: true, // the preset is for inference alone
			script: `curl -sS --fail-with-body -H "x-api-key: $ANTHROPIC_API_KEY" -d x https://api.anthropic.com/v1/files`,
			want:   []string{`"code":"request_refused"`}, never: []string{"api.anthropic.com POST /v1/files"},
		},
		{name: "grpc", script: "/clients/go-client dns:///grpc.example:443", want: []string{
			"unary 1048576 [trusted]", "server stream 20", "client stream 200000", "both ways 10", "status FailedPrecondition not now: 50% ü",
		}},
	}
}

// packageCases use the presets as their users do.
func packageCases(sumKey string) []clientCase {
	return []clientCase{
		{
			name: "git-clone", needs: "git",
			script:  `cd && git clone -q https://github.com/o/r && cat r/README && wc -c <r/large && git clone -q --depth 1 https://github.com/o/r.git ~/shallow && ls ~/shallow`,
			want:    []string{"trusted\n", "3145728", "README"},
			arrives: []string{"github.com GET /o/r/info/refs", "github.com POST /o/r/git-upload-pack"},
		},
		{name: "git-push", needs: "git", fails: true, script: pushScript, want: []string{"403"}, never: []string{"github.com POST /o/r/git-receive-pack"}},
		{
			name: "git-private", needs: "git", // with the token that the guest does not have
			script:  "git ls-remote https://github.com/o/private && git ls-remote https://x-access-token:$GITHUB_TOKEN@github.com/o/private && env",
			want:    []string{"refs/heads/main", "GITHUB_TOKEN="},
			arrives: []string{"github.com GET /o/private/info/refs Authorization"},
		},
		{
			name: "git-archive", needs: "curl",
			script: "curl -sSL https://github.com/o/r/archive/main.tar.gz | tar -xzO r-main/README", want: []string{"trusted"},
			arrives: []string{"codeload.github.com GET /o/r/tar.gz/main"},
		},
		{
			name: "pip-download", needs: "python3",
			script:  "cd && python3 -m pip download -q --disable-pip-version-check -d got carboy-first && ls got",
			want:    []string{"carboy_first-1.0-py3-none-any.whl", "carboy_second-1.1-py3-none-any.whl"},
			arrives: []string{pypiIndex + " GET /simple/carboy-second/", pypiFiles + " GET /packages/*"},
		},
		{
			name: "pip-install", needs: "python3", // reads metadata out of a wheel by ranges
			script: "cd && $(python3 -c 'import sys; print(sys.executable)') -m pip install -q --disable-pip-version-check --no-cache-dir --use-feature=fast-deps -t lib carboy_second && PYTHONPATH=lib python3 -c 'import carboy_second as c; print(c.word)'",
			want:   []string{"trusted"}, arrives: []string{pypiFiles + " GET /packages/* Range"},
		},
		{
			name: "npm-install", needs: "npm",
			script:  "mkdir -p ~/app && cd ~/app && npm install --audit --no-fund carboy-first && node -p 'require(\"carboy-first\") + \" and \" + require(\"carboy-second\")'",
			want:    []string{"audited 3 packages", "found 0 vulnerabilities", "trusted and trusted"},
			arrives: []string{npmRegistry + " GET /carboy-second/-/*", npmRegistry + " POST /-/npm/v1/security/advisories/bulk"},
		},
		{
			name: "apt-get", needs: "apt-get dpkg dpkg-deb",
			script: "cd && mkdir -p apt/state/lists/partial apt/cache/archives/partial && echo 'deb [trusted=yes] http://" + debianArchive + "/debian stable main' >sources && " +
				`get() { apt-get -qq -o Dir::Etc::SourceList=$HOME/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State=$HOME/apt/state -o Dir::Cache=$HOME/apt/cache "$@"; } && ` +
				"get update && get download carboy-hello && dpkg -x carboy-hello*.deb hello && hello/usr/bin/carboy-hello",
			want: []string{"hello from a package"},
		},
		{name: "npm-publish", needs: "npm", fails: true, script: publishScript, want: []string{"403"}, never: []string{npmRegistry + " PUT /*"}},
		{
			name: "go-mod-download", needs: "go",
			script:  "mkdir -p ~/m && cd ~/m && export GOFLAGS=-modcacherw GOSUMDB='" + sumKey + " https://" + goSums + "' && go mod init x.example/m 2>/dev/null && go mod edit -require=" + goModule.String() + " && go mod download -x -json all && cat go.sum",
			want:    []string{`"Sum": "h1:`, goModule.Path + " " + goModule.Version + " h1:"},
			arrives: []string{goProxy + " GET /example.com/*", goSums + " GET /lookup/*", goSums + " GET /tile/*"},
		},
	}
}

// pushScript pushes once more where nothing comes of it for half a minute, and no
// more than that. On a busy machine a push of a body of unknown length over HTTP/2 hangs at times
// after its head was sent, and as often where git (2.39 with libcurl 7.88)
// speaks to the forge itself, without a gate: not by the gate's doing. It says so
// then, with the end of what the first one did.
const pushScript = `rm -rf ~/p && git clone -q https://github.com/o/r ~/p && cd ~/p && git config user.name a && git config user.email a@localhost &&
cp /clients/upload . && git add upload && git commit -q -m second && { GIT_TRACE_CURL=$HOME/trace GIT_TRACE_CURL_NO_DATA=1 timeout 30 git push; s=$?; [ $s -ne 124 ] || { echo '` + pushHung + `'; tail -c 4000 ~/trace; timeout 30 git push; s=$?; }; exit $s; }`

// pushHung is what pushScript says where it pushed twice.
const pushHung = "the first push hung:"

// publishScript has a token: npm tries nothing without one.
var publishScript = `rm -rf ~/pub && mkdir -p ~/pub && cd ~/pub && echo '{"name":"carboy-mine","version":"1.0.0"}' >package.json &&
echo '//` + npmRegistry + `/:_authToken=made-up-in-the-guest' >.npmrc && npm publish`

// proxyCases use the gate as the proxy that variables name.
func proxyCases() []clientCase {
	const set = "export HTTPS_PROXY=http://192.0.0.1:3128 https_proxy=http://192.0.0.1:3128 http_proxy=http://192.0.0.1:3128; "
	return []clientCase{
		{name: "curl-proxy", needs: "curl", script: set + "curl -sS -w 'by %{remote_ip} %{http_connect}' https://web.example/", want: []string{"trusted over", "by 192.0.0.1 200"}},
		{name: "curl-proxy-clear", needs: "curl", script: set + "curl -sS -w 'by %{remote_ip}' http://web.example/", want: []string{"trusted over HTTP/1.1", "by 192.0.0.1"}},
		{name: "curl-proxy-refused", needs: "curl", fails: true, script: set + "curl -sS -v https://evil.example/", want: []string{"X-Carboy-Refused: not_allowed"}},
		{name: "wget-proxy", needs: "wget", script: set + "wget -qO- https://web.example/", want: []string{"trusted over"}},
		{name: "python-proxy", needs: "python3", script: set + "python3 /clients/fetch.py https://web.example/", want: []string{"urllib: trusted over", "requests: trusted over"}},
		{name: "java-proxy", needs: "javac", script: "java -Dhttps.proxyHost=192.0.0.1 -Dhttps.proxyPort=3128 -cp /clients Fetch https://web.example/", want: []string{"connection: trusted over"}},
		{name: "node-proxy", needs: "node", script: set + "node /clients/connect.mjs https://web.example/", want: []string{"connect: 200", "trusted over"}},
		{name: "npm-proxy", needs: "npm", script: set + "npm view carboy-first dist-tags", want: []string{"latest: '1.0.0'"}},
		{name: "git-proxy", needs: "git", script: set + "GIT_TRACE_CURL=1 git ls-remote https://github.com/o/r", want: []string{"CONNECT github.com:443", "refs/heads/main"}},
		{name: "go-proxy", script: set + "/clients/go-client https://web.example/", want: []string{"trusted over"}},
		{name: "grpc-proxy", script: set + "/clients/go-client dns:///grpc.example:443", want: []string{"both ways 10"}},
	}
}

// Stock clients do what they do elsewhere, as far as presets and rules allow,
// without a flag or file that says whom to trust: behind both walls, for root and for
// an ordinary user; whatever is not about that, once behind each wall and once for each.
func TestStockClients(t *testing.T) {
	t.Parallel()
	w, sumKey := clientWorld(t)
	env := []string{"ANTHROPIC_API_KEY=" + modelKey, "OPENAI_API_KEY=" + modelKey, "GITHUB_TOKEN=" + realToken}
	trust := trustCases("web.example")
	// A site that the gate does not vouch for: clients do look.
	for _, c := range trustCases("strange.example") {
		c.name, c.want, c.fails, c.never = c.name+"-distrusts", nil, true, []string{"strange.example GET /*"}
		trust = append(trust, c)
	}
	all := slices.Concat(trust, httpCases(), packageCases(sumKey), proxyCases())
	crossed(t, func(t *testing.T, wall, who string) {
		h := w.home(env...)
		if who == "ordinary" {
			h = w.ordinaryHome(carboy, env...)
		}
		mount := h.clientPrograms() + ":/clients:ro"
		name := h.create("--isolation", wall, "--mount", mount, "--secret", "ANTHROPIC_API_KEY", "--secret", "OPENAI_API_KEY", "--secret", "GITHUB_TOKEN",
			"--allow", "github", "--allow", "pypi", "--allow", "npm", "--allow", "go", "--allow", "anthropic", "--allow", "openai", "--allow", "debian",
			"--allow", "web.example", "--allow", "six.example", "--allow", "grpc.example", "--allow", "tls://strange.example")
		cases := all
		// Whom to trust is each one's own; protocols are the gate's.
		if wall == "gvisor" && who == "root" || wall == "process" && (who == "ordinary" || !long.On()) {
			cases = trust
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.in(t, w, h, name) })
		}
		h.ok("rm", "-f", name)
	})
	// What presets refuse works where a rule allows the whole host.
	t.Run("allowed", func(t *testing.T) {
		h := w.home(env...)
		mount := h.clientPrograms() + ":/clients:ro"
		name := h.create("--isolation", "process", "--mount", mount, "--allow", "github.com", "--allow", npmRegistry)
		for _, c := range []clientCase{
			{name: "git-push", needs: "git", script: pushScript, want: []string{"main -> main"}, arrives: []string{"github.com POST /o/r/git-receive-pack"}},
			{name: "npm-publish", needs: "npm", script: publishScript, want: []string{"+ carboy-mine@1.0.0"}, arrives: []string{npmRegistry + " PUT /carboy-mine"}},
		} {
			t.Run(c.name, func(t *testing.T) { c.in(t, w, h, name) })
		}
	})
}

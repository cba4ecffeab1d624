package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// access is what a route asks of whom.
type access struct {
	scope key.Scope // "": any key
	path  string    // with an object of the first team; names are of estate.fill
	body  string
	own   int // the owner's answer
	other int // another team's, whose key has every scope but admin
}

const adminOnly = key.Admin

// routesOfTeams are those that are about objects of a team, or about a team.
// A route without a row fails the test: write down who may ask for it.
var routesOfTeams = map[string]access{
	"GET /health": {key.Read, "", "", 204, 204},
	"GET /teams":  {"", "", "", 200, 200},

	"POST /sandboxes":                                {key.Manage, "", `{"templateID":"SNAP"}`, 201, 404},
	"POST /v2/sandboxes":                             {key.Manage, "", `{"templateID":"base","volumeMounts":[{"name":"VOL","path":"/v"}]}`, 501, 400}, // the make-believe wall mounts none
	"GET /sandboxes":                                 {key.Read, "", "", 200, 200},
	"GET /v2/sandboxes":                              {key.Read, "", "", 200, 200},
	"GET /sandboxes/{id}":                            {key.Read, "/sandboxes/BOX", "", 200, 404},
	"DELETE /sandboxes/{id}":                         {key.Manage, "/sandboxes/SPARE", "", 204, 404},
	"POST /sandboxes/{id}/timeout":                   {key.Manage, "/sandboxes/BOX/timeout", `{"timeout":60}`, 204, 404},
	"POST /sandboxes/{id}/refreshes":                 {key.Manage, "/sandboxes/BOX/refreshes", `{}`, 204, 404},
	"POST /sandboxes/{id}/connect":                   {key.Manage, "/sandboxes/BOX/connect", `{"timeout":60}`, 200, 404},
	"POST /v2/sandboxes/{id}/connect":                {key.Manage, "/v2/sandboxes/BOX/connect", `{"timeout":60}`, 200, 404},
	"POST /sandboxes/{id}/pause":                     {key.Manage, "/sandboxes/NAP/pause", `{}`, 204, 404},
	"POST /sandboxes/{id}/resume":                    {key.Manage, "/sandboxes/NAP/resume", `{}`, 201, 404},
	"POST /sandboxes/{id}/fork":                      {key.Manage, "/sandboxes/BOX/fork", `{}`, 201, 404},
	"POST /sandboxes/{id}/snapshots":                 {key.Manage, "/sandboxes/BOX/snapshots", `{"name":"again"}`, 201, 404},
	"GET /snapshots":                                 {key.Read, "", "", 200, 200},
	"GET /sandboxes/metrics":                         {key.Read, "/sandboxes/metrics?sandbox_ids=BOX", "", 501, 501},
	"GET /sandboxes/{id}/metrics":                    {key.Read, "/sandboxes/BOX/metrics", "", 501, 501},
	"PUT /sandboxes/{id}/network":                    {key.Manage, "/sandboxes/BOX/network", `{}`, 409, 404},
	"GET /sandboxes/{id}/logs":                       {key.Read, "/sandboxes/BOX/logs", "", 200, 404},
	"GET /v2/sandboxes/{id}/logs":                    {key.Read, "/v2/sandboxes/BOX/logs", "", 200, 404},
	"GET /volumes":                                   {key.Read, "", "", 200, 200},
	"POST /volumes":                                  {key.Manage, "", `{"name":"more"}`, 201, 201},
	"GET /volumes/{id}":                              {key.Read, "/volumes/VOL", "", 200, 404},
	"DELETE /volumes/{id}":                           {key.Manage, "/volumes/VOL", "", 204, 404},
	"GET /teams/{id}/metrics":                        {key.Read, "/teams/TEAM/metrics", "", 200, 403},
	"GET /teams/{id}/metrics/max":                    {key.Read, "/teams/TEAM/metrics/max?metric=concurrent_sandboxes", "", 200, 403},
	"GET /api-keys":                                  {key.Keys, "", "", 200, 200},
	"POST /api-keys":                                 {key.Keys, "", `{"name":"one more"}`, 201, 201},
	"PATCH /api-keys/{id}":                           {key.Keys, "/api-keys/KEYID", `{"name":"renamed"}`, 202, 404},
	"DELETE /api-keys/{id}":                          {key.Keys, "/api-keys/KEYID", "", 204, 404},
	"POST /access-tokens":                            {"", "", `{"name":"x"}`, 410, 410},
	"DELETE /access-tokens/{id}":                     {"", "/access-tokens/UUID", "", 404, 404},
	"GET /secrets":                                   {key.Read, "", "", 200, 200},
	"POST /secrets":                                  {key.Manage, "", `{"name":"more","value":"0123456789"}`, 201, 201},
	"GET /secrets/{id}":                              {key.Read, "/secrets/SEC", "", 200, 404},
	"POST /secrets/{id}":                             {key.Manage, "/secrets/SEC", `{"value":"0123456789"}`, 200, 404},
	"DELETE /secrets/{id}":                           {key.Manage, "/secrets/token", "", 204, 404},
	"GET /nodes":                                     {adminOnly, "", "", 401, 401},
	"GET /nodes/{id}":                                {adminOnly, "/nodes/UUID", "", 401, 401},
	"POST /nodes/{id}":                               {adminOnly, "/nodes/UUID", `{"status":"draining"}`, 401, 401},
	"GET /admin/sandboxes/running-counts":            {adminOnly, "", "", 401, 401},
	"POST /admin/teams/{id}/sandboxes/kill":          {adminOnly, "/admin/teams/TEAM/sandboxes/kill", "", 401, 401},
	"POST /admin/teams/{id}/builds/cancel":           {adminOnly, "/admin/teams/TEAM/builds/cancel", "", 401, 401},
	"POST /admin/teams/{id}/api-keys":                {adminOnly, "/admin/teams/TEAM/api-keys", `{"name":"x"}`, 401, 401},
	"DELETE /admin/teams/{id}/api-keys/{key}":        {adminOnly, "/admin/teams/TEAM/api-keys/KEYID", "", 401, 401},
	"POST /v3/templates":                             {key.Manage, "", `{"name":"fresh"}`, 202, 202},
	"POST /v2/templates":                             {key.Manage, "", `{"alias":"acme/fresh"}`, 202, 403},
	"POST /templates":                                {key.Manage, "", `{}`, 501, 501},
	"POST /templates/{id}":                           {key.Manage, "/templates/TPL", `{}`, 501, 501},
	"POST /templates/{id}/builds/{build}":            {key.Manage, "/templates/TPL/builds/BUILD", `{}`, 501, 501},
	"POST /v2/templates/{id}/builds/{build}":         {key.Manage, "/v2/templates/TPL/builds/BUILD", `{"fromTemplate":"base"}`, 202, 404},
	"DELETE /templates/{id}/builds/{build}":          {key.Manage, "/templates/TPL/builds/BUILD", "", 204, 404},
	"GET /templates":                                 {key.Read, "", "", 200, 200},
	"GET /v2/templates":                              {key.Read, "", "", 200, 200},
	"GET /templates/{id}":                            {key.Read, "/templates/TPL", "", 200, 404},
	"DELETE /templates/{id}":                         {key.Manage, "/templates/acme%2Fweb", "", 204, 404},
	"PATCH /templates/{id}":                          {key.Manage, "/templates/TPL", `{"public":false}`, 200, 404},
	"PATCH /v2/templates/{id}":                       {key.Manage, "/v2/templates/web", `{"public":false}`, 200, 404},
	"GET /templates/{id}/{part}":                     {key.Read, "/templates/aliases/acme%2Fweb", "", 200, 404},
	"GET /templates/{id}/{part}/{hash}":              {key.Manage, "/templates/TPL/files/HASH", "", 201, 404},
	"GET /templates/{id}/builds/{build}/status":      {key.Read, "/templates/TPL/builds/BUILD/status", "", 200, 404},
	"GET /templates/{id}/builds/{build}/logs":        {key.Read, "/templates/TPL/builds/BUILD/logs", "", 200, 404},
	"POST /templates/tags":                           {key.Manage, "", `{"target":"acme/web","tags":["v2"]}`, 201, 404},
	"DELETE /templates/tags":                         {key.Manage, "", `{"name":"acme/web","tags":["v2"]}`, 204, 404},
	"GET /v1/version":                                {key.Read, "", "", 200, 200},
	"GET /v1/status":                                 {key.Read, "", "", 403, 403},
	"POST /v1/shutdown":                              {key.Manage, "", "", 403, 403},
	"POST /v1/sandboxes":                             {key.Manage, "", `{"snapshot":"SNAP"}`, 201, 404},
	"GET /v1/sandboxes":                              {key.Read, "", "", 200, 200},
	"GET /v1/sandboxes/{id}":                         {key.Read, "/v1/sandboxes/box", "", 200, 404},
	"DELETE /v1/sandboxes/{id}":                      {key.Manage, "/v1/sandboxes/spare2?force=1", "", 204, 404},
	"POST /v1/sandboxes/{id}/start":                  {key.Manage, "/v1/sandboxes/NAP/start", "", 200, 404},
	"POST /v1/sandboxes/{id}/setup":                  {key.Manage, "/v1/sandboxes/NAP/setup", `{"agent":{"provider":"x","program":[],"dir":"/"},"definition":"title = 'x'\nabout = 'x'\n[access]\nnone = true\n"}`, 200, 404},
	"POST /v1/sandboxes/{id}/stop":                   {key.Manage, "/v1/sandboxes/NAP/stop", "", 200, 404},
	"POST /v1/sandboxes/{id}/pause":                  {key.Manage, "/v1/sandboxes/NAP/pause", "", 409, 404},
	"PATCH /v1/sandboxes/{id}":                       {key.Manage, "/v1/sandboxes/BOX", `{"limits":{"memory":1073741824}}`, 200, 404},
	"POST /v1/sandboxes/{id}/timeout":                {key.Manage, "/v1/sandboxes/BOX/timeout", `{"ttl_ms":60000}`, 200, 404},
	"POST /v1/sandboxes/{id}/workspace/lock":         {key.Manage, "/v1/sandboxes/BOX/workspace/lock", `{"end_writers":true}`, 501, 404},
	"POST /v1/sandboxes/{id}/workspace/unlock":       {key.Manage, "/v1/sandboxes/BOX/workspace/unlock", "", 501, 404},
	"POST /v1/sandboxes/{id}/finish":                 {key.Manage, "/v1/sandboxes/spare3/finish", "", 409, 404},
	"GET /v1/sandboxes/{id}/processes":               {key.Read, "/v1/sandboxes/BOX/processes", "", 501, 404},
	"GET /v1/sandboxes/{id}/held":                    {key.Read, "/v1/sandboxes/BOX/held", "", 200, 404},
	"GET /v1/sandboxes/{id}/usage":                   {key.Read, "/v1/sandboxes/BOX/usage", "", 501, 404},
	"GET /v1/sandboxes/{id}/hold":                    {key.Manage, "/v1/sandboxes/BOX/hold", "", 0, 404},
	"GET /v1/sandboxes/{id}/events":                  {key.Read, "/v1/sandboxes/BOX/events", "", 200, 404},
	"POST /v1/sandboxes/{id}/events":                 {key.Exec, "/v1/sandboxes/BOX/events", `{"type":"user.x","message":"y"}`, 204, 404},
	"GET /v1/sandboxes/{id}/changes":                 {key.Read, "/v1/sandboxes/BOX/changes", "", 409, 404},
	"GET /v1/sandboxes/{id}/ports/{port}":            {key.Exec, "/v1/sandboxes/BOX/ports/3000", "", 400, 404},
	"POST /v1/sandboxes/{id}/ports/{port}/open":      {key.Exec, "/v1/sandboxes/BOX/ports/3000/open", "", 403, 404},
	"POST /v1/sandboxes/{id}/offers/{service}":       {key.Manage, "/v1/sandboxes/BOX/offers/docs", "", 400, 404},
	"GET /v1/sandboxes/{id}/shells":                  {key.Read, "/v1/sandboxes/BOX/shells", "", 200, 404},
	"POST /v1/sandboxes/{id}/shells":                 {key.Exec, "/v1/sandboxes/BOX/shells", `{"shell_id":"s"}`, 201, 404},
	"GET /v1/sandboxes/{id}/shells/{shell}":          {key.Read, "/v1/sandboxes/BOX/shells/s", "", 200, 404},
	"DELETE /v1/sandboxes/{id}/shells/{shell}":       {key.Exec, "/v1/sandboxes/BOX/shells/s", "", 200, 404},
	"GET /v1/sandboxes/{id}/shells/{shell}/output":   {key.Exec, "/v1/sandboxes/BOX/shells/s/output?cursor=7", "", 200, 404},
	"POST /v1/sandboxes/{id}/shells/{shell}/input":   {key.Exec, "/v1/sandboxes/BOX/shells/s/input", `{"input":"pwd"}`, 200, 404},
	"POST /v1/sandboxes/{id}/shells/{shell}/signal":  {key.Exec, "/v1/sandboxes/BOX/shells/s/signal", `{"signal":"INT"}`, 200, 404},
	"POST /v1/sandboxes/{id}/shells/{shell}/size":    {key.Exec, "/v1/sandboxes/BOX/shells/s/size", `{"cols":80,"rows":24}`, 200, 404},
	"GET /v1/sandboxes/{id}/services":                {key.Read, "/v1/sandboxes/BOX/services", "", 200, 404},
	"POST /v1/sandboxes/{id}/services":               {key.Exec, "/v1/sandboxes/BOX/services", `{"service_name":"w","command":"true"}`, 201, 404},
	"GET /v1/sandboxes/{id}/services/{service}":      {key.Read, "/v1/sandboxes/BOX/services/w", "", 200, 404},
	"DELETE /v1/sandboxes/{id}/services/{service}":   {key.Exec, "/v1/sandboxes/BOX/services/w", "", 200, 404},
	"GET /v1/sandboxes/{id}/services/{service}/logs": {key.Exec, "/v1/sandboxes/BOX/services/w/logs?tail=1", "", 200, 404},
	"POST /v1/sandboxes/{id}/changes":                {key.Read, "/v1/sandboxes/BOX/changes", `{}`, 409, 404},
	"GET /v1/sandboxes/{id}/policy":                  {key.Read, "/v1/sandboxes/BOX/policy", "", 200, 404},
	"PUT /v1/sandboxes/{id}/policy":                  {key.Manage, "/v1/sandboxes/BOX/policy", `{}`, 409, 404},
	"POST /v1/sandboxes/{id}/policy/test":            {key.Read, "/v1/sandboxes/BOX/policy/test", `{"request":"GET https://a.example/"}`, 200, 404},
	"GET /v1/sandboxes/{id}/netlog":                  {key.Read, "/v1/sandboxes/BOX/netlog", "", 200, 404},
	"POST /v1/sandboxes/{id}/snapshots":              {key.Manage, "/v1/sandboxes/BOX/snapshots", "", 201, 404},
	"GET /v1/snapshots":                              {key.Read, "", "", 200, 200},
	"GET /v1/snapshots/{id}":                         {key.Read, "/v1/snapshots/SNAP", "", 200, 404},
	"DELETE /v1/snapshots/{id}":                      {key.Manage, "/v1/snapshots/SNAP", "", 204, 404},
	"GET /v1/policy/presets":                         {key.Read, "", "", 200, 200},
	"GET /v1/approvals":                              {key.Read, "", "", 200, 200},
	"GET /v1/approvals/{id}":                         {key.Read, "/v1/approvals/1", "", 200, 404},
	"POST /v1/approvals/{id}/allow":                  {key.Approve, "/v1/approvals/1/allow", `{"reason":"ours"}`, 200, 404},
	"POST /v1/approvals/{id}/deny":                   {key.Approve, "/v1/approvals/2/deny", `{}`, 200, 404},
	"GET /v1/metrics":                                {key.Read, "", "", 200, 200},
	"GET /v1/keys":                                   {key.Keys, "", "", 200, 200},
	"POST /v1/keys":                                  {key.Keys, "", `{"name":"more","team":"acme"}`, 201, 403},
	"DELETE /v1/keys/{id}":                           {key.Keys, "/v1/keys/KEYID", "", 204, 404},
	"GET /v1/secrets":                                {key.Read, "", "", 200, 200},
	"POST /v1/secrets":                               {key.Manage, "", `{"name":"MORE","value":"0123456789"}`, 201, 201},
	"DELETE /v1/secrets/{name}":                      {key.Manage, "/v1/secrets/MINE", "", 204, 404},
	"POST /v1/secrets/{name}/rotate":                 {key.Manage, "/v1/secrets/MINE/rotate", `{"value":"9876543210"}`, 200, 404},
	"GET /v1/templates/cache":                        {key.Read, "", "", 200, 200},
	"POST /v1/templates/gc":                          {key.Manage, "", "", 200, 200},
	"GET /v1/volumes":                                {key.Read, "", "", 200, 200},
	"POST /v1/volumes":                               {key.Manage, "", `{"name":"still-more"}`, 201, 201},
	"GET /v1/volumes/{ref}":                          {key.Read, "/v1/volumes/disk", "", 200, 404},
	"DELETE /v1/volumes/{ref}":                       {key.Manage, "/v1/volumes/VOL", "", 204, 404},
	"POST /v1/volumes/{ref}/changes":                 {key.Read, "/v1/volumes/disk/changes", `{}`, 409, 404},
	"GET /v1/volumes/{ref}/archive":                  {key.Exec, "/v1/volumes/disk/archive", "", 200, 404},
	"GET /v1/pods":                                   {key.Read, "", "", 200, 200},
	"POST /v1/pods":                                  {key.Manage, "", `{"parent":"lead","name":"x"}`, 201, 404},
	"GET /v1/pods/{name}":                            {key.Read, "/v1/pods/writer", "", 200, 404},
	"DELETE /v1/pods/{name}":                         {key.Manage, "/v1/pods/writer", "", 200, 404},
	"POST /v1/pods/{name}/messages":                  {key.Exec, "/v1/pods/writer/messages", `{"message":"x"}`, 204, 404},
	"GET /v1/pods/{name}/attach":                     {key.Exec, "/v1/pods/writer/attach", "", 400, 404},
	"GET /v1/pods/{name}/output":                     {key.Exec, "/v1/pods/writer/output?from=0&wait=1", "", 200, 404},
	"/v1/sandboxes/{id}/guest/{path...}":             {key.Exec, "/v1/sandboxes/BOX/guest/health", "", 200, 404},
	"POST /v1/sessions":                              {key.Manage, "", `{"session_id":"mine"}`, 200, 200},
	"GET /v1/sessions":                               {key.Read, "", "", 200, 200},
	"GET /v1/sessions/{id}":                          {key.Read, "/v1/sessions/alice", "", 200, 404},
	"DELETE /v1/sessions/{id}":                       {key.Manage, "/v1/sessions/bob", "", 200, 404},
	"POST /v1/sessions/{id}/exec":                    {key.Exec, "/v1/sessions/mine/exec", `{"command":"true"}`, 200, 200},
	"POST /v1/sessions/{id}/tools/{tool}":            {key.Exec, "/v1/sessions/alice/tools/read", `{"path":"f"}`, 200, 404},
	"POST /v1/sessions/{id}/attachments":             {key.Exec, "/v1/sessions/alice/attachments", `{"query_id":"1","files":[]}`, 200, 404},
	"POST /v1/sessions/{id}/attachments/collect":     {key.Exec, "/v1/sessions/alice/attachments/collect", `{"query_id":"1"}`, 200, 404},
	"DELETE /v1/sessions/{id}/attachments":           {key.Exec, "/v1/sessions/alice/attachments", "", 200, 404},
	"POST /v1/sessions/{id}/processes":               {key.Exec, "/v1/sessions/alice/processes", `{"command":"true"}`, 200, 404},
	"GET /v1/sessions/{id}/processes/{process}":      {key.Read, "/v1/sessions/alice/processes/p", "", 200, 404},
	"DELETE /v1/sessions/{id}/processes/{process}":   {key.Exec, "/v1/sessions/alice/processes/p", "", 200, 404},
	"GET /v1/session-status":                         {key.Read, "", "", 200, 200},
	"GET /v1/session-errors":                         {key.Read, "", "", 200, 200},
	"GET /v1/session-tools":                          {key.Read, "", "", 200, 200},
	"GET /v1/skills":                                 {key.Read, "", "", 200, 200},
	"POST /v1/skills":                                {key.Manage, "", "", 400, 400},
	"GET /v1/skills/{name}":                          {key.Read, "/v1/skills/alice", "", 200, 404},
	"DELETE /v1/skills/{name}":                       {key.Manage, "/v1/skills/carol", "", 200, 404},
	"GET /v1/images":                                 {key.Read, "", "", 501, 501},
	"DELETE /v1/images":                              {key.Manage, "/v1/images?ref=x", "", 501, 501},
	"POST /v1/images/pull":                           {key.Manage, "", `{"name":"x"}`, 501, 501},
	"POST /v1/images/import":                         {key.Manage, "", "", 501, 501},
	"POST /v1/images/gc":                             {key.Manage, "", "", 403, 403},
	"GET /v1/sandboxes/{id}/disk":                    {key.Read, "/v1/sandboxes/BOX/disk", "", 409, 404},
	"GET /v1/sandboxes/{id}/disk/file":               {key.Exec, "/v1/sandboxes/BOX/disk/file?path=/f", "", 409, 404},
	"GET /v1/sandboxes/{id}/disk/image":              {key.Exec, "/v1/sandboxes/BOX/disk/image", "", 409, 404},
	"POST /v1/sandboxes/{id}/disk/scrub":             {key.Manage, "/v1/sandboxes/BOX/disk/scrub", "", 409, 404},
}

var routePattern = regexp.MustCompile(`\{"((?:[A-Z]+ )?/[^"?]*)\??", `)

// routesOfCode reads what routes there are from where they are written down.
func routesOfCode(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../e2b/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, "v1.go", "sessions.go", "actions.go") {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range routePattern.FindAllStringSubmatch(string(b), -1) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	return all
}

// estate is a daemon in which the first team has one of everything.
type estate struct {
	*teams
	names *strings.Replacer // of what a row may name
	ids   []string          // what nobody else is to be told
}

func newEstate(t *testing.T, opts func(*server.Options)) *estate {
	t.Helper()
	w := &estate{teams: newTeams(t, team.NewBook(team.Limits{}, nil))}
	w.Kill()
	w.Guest.Agent = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	w.Guest.Actions = func([]byte) string { return `{"shell_id":"s","service_name":"w"}` }
	opts(&w.Options)
	setup := w.Setup
	dir := t.TempDir()
	w.Setup = func(m *sandbox.Manager, o *server.Options, d *e2b.Options) {
		setup(m, o, d)
		w.furnish(t, dir, m, o, d)
	}
	w.Start()
	w.fill(t)
	return w
}

// fill makes one of everything for the first team.
func (w *estate) fill(t *testing.T) {
	t.Helper()
	for _, sc := range []key.Scope{key.Read, key.Manage, key.Exec, key.Approve, key.Keys} {
		w.keys["only "+string(sc)] = w.mint(t, "acme", string(sc), sc)
	}
	w.keys["theirs"] = w.mint(t, "other", "all", key.Read, key.Manage, key.Exec, key.Approve, key.Keys)
	w.keys["ours"] = w.mint(t, "acme", "all", key.Read, key.Manage, key.Exec, key.Approve, key.Keys)
	spare := w.mint(t, "acme", "spare", key.Read)
	id := func(field, body string) string {
		t.Helper()
		got, _ := decode[map[string]any](t, body)[field].(string)
		if got == "" {
			t.Fatalf("%s is not in %s", field, body)
		}
		w.ids = append(w.ids, got)
		return got
	}
	made := func(name string) string {
		return id("id", w.want(t, 201, "ours", "POST", "/v1/sandboxes", `{"name":"`+name+`"}`))
	}
	instance, nap, spare1 := made("box"), made("nap"), made("spare")
	made("spare2")
	made("spare3")
	snap := id("snapshotID", w.want(t, 201, "ours", "POST", "/sandboxes/"+instance+"/snapshots", `{"name":"web"}`))
	asked := w.want(t, 202, "ours", "POST", "/v3/templates", `{"name":"web"}`)
	vol := id("volumeID", w.want(t, 201, "ours", "POST", "/volumes", `{"name":"disk"}`))
	sec := id("secretID", w.want(t, 201, "ours", "POST", "/secrets", `{"name":"token","value":"0123456789abcdef"}`))
	w.want(t, 201, "ours", "POST", "/v1/secrets", `{"name":"MINE","value":"0123456789abcdef"}`)
	keyID := ""
	for _, k := range decode[[]struct {
		ID, Name string
	}](t, w.want(t, 200, "ours", "GET", "/api-keys", "")) {
		if w.ids = append(w.ids, k.ID); k.Name == "spare" {
			keyID = k.ID
		}
	}
	w.keys["spare"] = spare
	w.names = strings.NewReplacer("BOX", instance, "NAP", nap, "SPARE", spare1, "SNAP", snap, "TPL", id("templateID", asked),
		"BUILD", id("buildID", asked), "VOL", vol, "SEC", sec, "KEYID", keyID, "TEAM", team.ID(acme),
		"UUID", "00000000-0000-4000-8000-000000000000", "HASH", strings.Repeat("0a", 32))
}

// mint makes a key at run time that has these scopes alone, and host_image.
func (w *estate) mint(t *testing.T, team, name string, scopes ...key.Scope) string {
	t.Helper()
	list, err := json.Marshal(scopes)
	if err != nil {
		t.Fatal(err)
	}
	return decode[struct{ Secret string }](t, w.want(t, 201, "admin", "POST", "/v1/keys",
		fmt.Sprintf(`{"name":%q,"team":%q,"scopes":%s,"host_image":true}`, name, team, list))).Secret
}

func (w *estate) asks(t *testing.T, pattern string, a access, who string, more ...string) (int, string) {
	t.Helper()
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		method, path = "GET", pattern
	}
	if a.path != "" {
		path = a.path
	}
	resp, body := w.ask(t, who, method, w.names.Replace(path), w.names.Replace(a.body), more...)
	return resp.StatusCode, body
}

// state is all that the first team has, as it sees it.
func (w *estate) state(t *testing.T) string {
	t.Helper()
	var all []string
	for _, path := range []string{
		"/v1/sandboxes", "/v1/snapshots", "/snapshots", "/v1/volumes", "/secrets", "/templates", "/templates/TPL/tags",
		"/templates/TPL/builds/BUILD/status", "/v1/sandboxes/BOX/events", "/v1/sessions/alice", "/v1/sessions/bob", "/v1/sessions/carol",
	} {
		all = append(all, w.want(t, 200, "ours", "GET", w.names.Replace(path), ""))
	}
	for _, k := range decode[[]struct{ ID, Name string }](t, w.want(t, 200, "ours", "GET", "/api-keys", "")) {
		all = append(all, k.ID+" "+k.Name)
	}
	for _, s := range decode[[]map[string]any](t, w.want(t, 200, "ours", "GET", "/v1/secrets", "")) {
		all = append(all, fmt.Sprint(s["name"], s["created_at"], s["rotated_at"]))
	}
	return strings.Join(all, "\n")
}

// Every route there is asks for its scope, and gives another team nothing of
// what the first one has; the owner, with the scope, is let through.
func TestWhoMayAskForWhat(t *testing.T) {
	w := newEstate(t, func(*server.Options) {})
	code := routesOfCode(t)
	if len(code) < 100 {
		t.Fatalf("there are %d routes: find them in another way", len(code))
	}
	for _, p := range code {
		if _, ok := routesOfTeams[p]; !ok {
			t.Errorf("%s: no row says who may ask for it", p)
		}
	}
	for p := range routesOfTeams {
		if !slices.Contains(code, p) {
			t.Errorf("%s: there is no such route", p)
		}
	}
	if t.Failed() {
		return
	}
	before := w.state(t)
	for _, p := range code {
		w.refuses(t, p, routesOfTeams[p])
	}
	if after := w.state(t); after != before {
		t.Errorf("refused requests changed what the team has:\n%s\nand now:\n%s", before, after)
	}
	for _, p := range slices.Concat(slices.DeleteFunc(code, func(p string) bool {
		return slices.Contains(lastOfAll, p) || slices.Contains(gone, p) || routesOfTeams[p].own == 0
	}), lastOfAll) {
		if got, body := w.asks(t, p, routesOfTeams[p], "ours"); got != routesOfTeams[p].own {
			t.Errorf("%s by its owner = %d %s, want %d", p, got, body, routesOfTeams[p].own)
		}
	}
}

// A set-up runs commands: who may make sandboxes, and not run anything in them, sets none up, be it
// an administrator who acts for the team.
func TestSetUpRunsCommands(t *testing.T) {
	w := newEstate(t, func(*server.Options) {})
	w.keys["acting"] = w.mint(t, "other", "acting", key.Admin, key.Manage)
	const setup = `{"agent":{"provider":"x","program":[],"dir":"/"},"definition":"title = 'x'\nabout = 'x'\n[access]\nnone = true\n"}`
	for _, tt := range []struct {
		path, body string
		done       int
	}{
		{"/v1/sandboxes", `{"name":"mine","setup":` + setup + `}`, 201},
		{"/v1/sandboxes/NAP/setup", setup, 200},
	} {
		path := w.names.Replace(tt.path)
		for who, headers := range map[string][]string{"only manage": nil, "acting": {"X-Team-Id", team.ID(acme)}} {
			if resp, body := w.ask(t, who, "POST", path, tt.body, headers...); resp.StatusCode != 403 || !strings.Contains(body, "has not the scope exec") {
				t.Errorf("%s by %s: %d %s", tt.path, who, resp.StatusCode, body)
			}
		}
		if resp, body := w.ask(t, "ours", "POST", path, tt.body); resp.StatusCode != tt.done {
			t.Errorf("%s by who may run commands: %d %s", tt.path, resp.StatusCode, body)
		}
	}
}

// A team that is named besides the key is the key's, or nothing is done.
func TestAnotherTeamNamed(t *testing.T) {
	w := newEstate(t, func(*server.Options) {})
	for _, tt := range []struct {
		who  string
		want int
	}{{"ours", 200}, {"theirs", 400}} {
		for _, path := range []string{"/templates", "/v2/templates"} {
			w.want(t, tt.want, tt.who, "GET", path+"?teamID="+team.ID(acme), "")
		}
		w.want(t, map[int]int{200: 202, 400: 400}[tt.want], tt.who, "POST", "/v3/templates", `{"name":"x","teamID":"`+team.ID(acme)+`"}`)
	}
}

// refuses asks for one route as everybody who may not.
func (w *estate) refuses(t *testing.T, p string, a access) {
	t.Helper()
	for who, header := range map[string][]string{
		"nobody": {"X-API-KEY", "-"}, "a forger": {"X-API-KEY", "e2b_" + strings.Repeat("0", 40)},
		"a forger of tokens": {"X-API-KEY", "-", "Authorization", "Bearer e2b_" + strings.Repeat("0", 40)},
		"a false admin":      {"X-API-KEY", "-", "X-Admin-Token", w.keys["ours"]},
		"two keys":           {"Authorization", "Bearer " + w.keys["theirs"]},
	} {
		why := "the API key is not known"
		if who == "nobody" {
			why = "an API key is needed"
		}
		if got, body := w.asks(t, p, a, "ours", header...); got != http.StatusUnauthorized || !strings.Contains(body, why) {
			t.Errorf("%s by %s = %d %s, want 401, and that %s", p, who, got, body, why)
		}
	}
	for _, sc := range []key.Scope{key.Read, key.Manage, key.Exec, key.Approve, key.Keys} {
		if a.scope == "" || sc == a.scope {
			continue
		}
		want := http.StatusForbidden
		if a.scope == key.Admin {
			want = http.StatusUnauthorized
		}
		if got, body := w.asks(t, p, a, "only "+string(sc)); got != want {
			t.Errorf("%s with the scope %s alone = %d %s, want %d", p, sc, got, body, want)
		}
	}
	if got, body := w.asks(t, p, a, "theirs", "X-Team-ID", team.ID(acme)); got != http.StatusForbidden {
		t.Errorf("%s by another team in the name of the first = %d %s, want 403", p, got, body)
	}
	got, body := w.asks(t, p, a, "theirs")
	if got != a.other {
		t.Errorf("%s by another team = %d %s, want %d", p, got, body, a.other)
	}
	for _, id := range w.ids {
		if strings.Contains(body, id) && !strings.Contains(a.path+a.body, "BOX") && got < 300 {
			t.Errorf("%s tells another team of %s: %s", p, id, body)
		}
	}
	if json.Valid([]byte(body)) || body == "" || got < 300 {
		return
	}
	t.Errorf("%s by another team: not JSON: %s", p, body)
}

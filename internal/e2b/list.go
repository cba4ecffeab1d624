package e2b

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

const (
	maxPage      = 100
	stateRunning = "running"
	statePaused  = "paused" // stopped, as we have it: with its files, and its processes where the wall could keep them
)

// never is when a sandbox without an end ends: E2B's clients need a date.
var never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// listed is a sandbox as lists have it.
type listed struct {
	TemplateID   string            `json:"templateID"`
	SandboxID    string            `json:"sandboxID"`
	Alias        string            `json:"alias,omitempty"`
	ClientID     string            `json:"clientID"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	CPUCount     int32             `json:"cpuCount"`
	MemoryMB     int32             `json:"memoryMB"`
	DiskSizeMB   int32             `json:"diskSizeMB"`
	Metadata     map[string]string `json:"metadata"`
	State        string            `json:"state"`
	EnvdVersion  string            `json:"envdVersion"`
	VolumeMounts []volumeMount     `json:"volumeMounts"`
}

// detail is a sandbox as one is looked at.
type detail struct {
	listed
	EnvdAccessToken string    `json:"envdAccessToken,omitempty"`
	AllowInternet   bool      `json:"allowInternetAccess"`
	Domain          *string   `json:"domain"`
	Network         *network  `json:"network,omitempty"`
	Lifecycle       lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// stateOf is E2B's word for a sandbox's state; one that is leaving has none.
func stateOf(sb *sandbox.Sandbox) string {
	switch sb.State {
	case sandbox.StateCreated, sandbox.StateRunning:
		return stateRunning
	case sandbox.StateStopped:
		return statePaused
	default:
		return ""
	}
}

func list(sb *sandbox.Sandbox) listed {
	out := listed{
		TemplateID: templateOf(sb), SandboxID: sb.ID, Alias: aliasOf(sb), ClientID: clientID,
		StartedAt: started(sb), EndAt: sb.ExpiresAt,
		CPUCount:   cpuCount(sb.Spec.Limits.CPUs),
		MemoryMB:   mib(sb.Spec.Limits.Memory),
		DiskSizeMB: mib(sb.Spec.Limits.Disk),
		Metadata:   sb.Spec.Labels, State: stateOf(sb), EnvdVersion: EnvdVersion,
		VolumeMounts: volumeMounts(sb),
	}
	switch {
	case !out.EndAt.IsZero():
	case out.State == statePaused:
		out.EndAt = sb.EndedAt
	default:
		out.EndAt = never
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}

func started(sb *sandbox.Sandbox) time.Time {
	if sb.StartedAt.IsZero() {
		return sb.CreatedAt
	}
	return sb.StartedAt
}

func mib(bytes int64) int32 { return int32(min(bytes>>20, math.MaxInt32)) }

func (h *handler) get(w http.ResponseWriter, r *http.Request, c Caller) error {
	sb, err := h.find(r, c)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, detail{
		listed: list(sb), EnvdAccessToken: tokenFor(sb.Token, c), Domain: h.domain(),
		AllowInternet: sb.Spec.Network == sandbox.NetworkOn,
		Network:       shownNetwork(sb),
		Lifecycle: lifecycle{
			AutoResume: sb.Spec.Traffic.AutoResume,
			OnTimeout:  map[bool]string{true: "kill", false: "pause"}[sb.Spec.OnExpiry == sandbox.OnExpiryRemove],
		},
	})
	return nil
}

// find returns the sandbox that the path names, by ID alone as E2B has it.
func (h *handler) find(r *http.Request, c Caller) (*sandbox.Sandbox, error) {
	id := r.PathValue("id")
	if !sandbox.ValidID(id) {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %.80q: not found", id)
	}
	sb, err := h.m.Get(r.Context(), c.Caller, id)
	if err == nil && stateOf(sb) == "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", id)
	}
	return sb, err
}

func (h *handler) listV1(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "metadata")
	if err != nil {
		return err
	}
	f, err := q.filter()
	if err != nil {
		return err
	}
	page, _, err := h.page(r, c, f, listing{states: []string{stateRunning}, limit: math.MaxInt})
	if err == nil {
		wire.JSON(w, http.StatusOK, page)
	}
	return err
}

func (h *handler) listV2(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "metadata", "state", "order", "startedAfter", "template", "limit", "nextToken")
	if err != nil {
		return err
	}
	f, err := q.filter()
	if err != nil {
		return err
	}
	l, err := q.listing()
	if err != nil {
		return err
	}
	page, next, err := h.page(r, c, f, l)
	if err != nil {
		return err
	}
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	wire.JSON(w, http.StatusOK, page)
	return nil
}

// listing is how a list is cut and sorted.
type listing struct {
	states    []string
	ascending bool
	after     time.Time // started then or later
	template  string
	limit     int
	from      cursor
}

// page returns the sandboxes that l selects, and where the next page begins.
func (h *handler) page(r *http.Request, c Caller, f sandbox.Filter, l listing) ([]listed, string, error) {
	all, err := h.m.List(r.Context(), c.Caller, f)
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(all, func(a, b *sandbox.Sandbox) int {
		return l.compare(cursorOf(a), cursorOf(b))
	})
	out := []listed{}
	for _, sb := range all {
		if !slices.Contains(l.states, stateOf(sb)) || started(sb).Before(l.after) ||
			l.template != "" && templateOf(sb) != l.template ||
			l.from != (cursor{}) && l.compare(cursorOf(sb), l.from) <= 0 {
			continue
		}
		if len(out) == l.limit {
			last := out[len(out)-1]
			return out, cursor{last.StartedAt.UnixNano(), last.SandboxID}.String(), nil
		}
		out = append(out, list(sb))
	}
	return out, "", nil
}

// cursor is the place of a sandbox in a list.
type cursor struct {
	nanos int64
	id    string
}

func cursorOf(sb *sandbox.Sandbox) cursor { return cursor{started(sb).UnixNano(), sb.ID} }

func (l listing) compare(a, b cursor) int {
	n := cmp.Or(cmp.Compare(a.nanos, b.nanos), cmp.Compare(a.id, b.id))
	if !l.ascending {
		n = -n
	}
	return n
}

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", c.nanos, c.id))
}

func parseCursor(s string, valid func(id string) bool) (cursor, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	nanos, id, ok := strings.Cut(string(b), ".")
	n, nerr := strconv.ParseInt(nanos, 10, 64)
	if err != nil || !ok || nerr != nil || !valid(id) {
		return cursor{}, sandbox.Errorf(sandbox.Invalid, "nextToken: not one of this server's")
	}
	return cursor{n, id}, nil
}

// params are the parameters of a request, each known and there once.
type params url.Values

func parse(r *http.Request, known ...string) (params, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "parameters: not well formed")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, sandbox.Errorf(sandbox.Invalid, "parameter %.80q: there is no such parameter", name)
		}
		if len(values) > 1 && name != "state" {
			return nil, sandbox.Errorf(sandbox.Invalid, "parameter %s: it is there twice", name)
		}
	}
	return params(q), nil
}

func (p params) get(name string) string { return url.Values(p).Get(name) }

// filter reads metadata: a query of its own, in which keys and values are
// escaped once more.
func (p params) filter() (f sandbox.Filter, err error) {
	bad := sandbox.Errorf(sandbox.Invalid, "metadata: not KEY=VALUE&KEY=VALUE, escaped")
	pairs, err := url.ParseQuery(p.get("metadata"))
	if err != nil {
		return f, bad
	}
	for k, vs := range pairs {
		key, kerr := url.PathUnescape(k)
		value, verr := url.PathUnescape(vs[0])
		if kerr != nil || verr != nil || len(vs) > 1 {
			return f, bad
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[key] = value
	}
	return f, nil
}

func (p params) listing() (l listing, err error) {
	l = listing{states: []string{stateRunning, statePaused}, template: p.get("template"), limit: maxPage}
	if len(p["state"]) > 0 {
		l.states = strings.Split(strings.Join(p["state"], ","), ",")
	}
	for _, st := range l.states {
		if st != stateRunning && st != statePaused {
			return l, sandbox.Errorf(sandbox.Invalid, "state %.80q: running or paused", st)
		}
	}
	switch p.get("order") {
	case "", "desc":
	case "asc":
		l.ascending = true
	default:
		return l, sandbox.Errorf(sandbox.Invalid, "order: asc or desc")
	}
	if s := p.get("startedAfter"); s != "" {
		if l.after, err = time.Parse(time.RFC3339, s); err != nil {
			return l, sandbox.Errorf(sandbox.Invalid, "startedAfter: not a time as RFC 3339 has it")
		}
	}
	if l.limit, err = p.number("limit", maxPage, 1, maxPage); err != nil {
		return l, err
	}
	if s := p.get("nextToken"); s != "" {
		l.from, err = parseCursor(s, sandbox.ValidID)
	}
	return l, err
}

// number reads a whole number between lo and hi, def where it is absent.
func (p params) number(name string, def, lo, hi int) (int, error) {
	s := p.get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		return 0, sandbox.Errorf(sandbox.Invalid, "%s: from %d to %d", name, lo, hi)
	}
	return n, nil
}

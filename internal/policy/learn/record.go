package learn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// Bounds of a record that is read.
const (
	MaxSize    = 64 << 20 // bytes
	MaxRecords = 200_000
	maxText    = 4096 // bytes of one of its texts
)

// What a record says.
const (
	allow           = netlog.Allow
	deny            = netlog.Deny
	asked           = netlog.Ask // another record says what came of it
	ellipsis        = "…"        // ends a text that was too long to be kept
	gateHost        = policy.GateHost
	protocolService = netlog.Service // of a call of a program outside
	noAnswer        = "upstream_failed"
)

// protocols that records have.
var protocols = []string{"dns", "tcp", "udp", "tls", "http", "https", netlog.Service, "icmp", "frame"}

// Read reads a record that was saved: the array that carboy net log --json writes, or
// one object a line, as with -f. What is not of a record is an error, and says where.
func Read(r io.Reader) ([]api.NetRecord, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > MaxSize:
		return nil, fmt.Errorf("more than %d bytes", MaxSize)
	}
	text = bytes.TrimSpace(text)
	var lines []json.RawMessage
	if bytes.HasPrefix(text, []byte("[")) {
		if err := json.Unmarshal(text, &lines); err != nil {
			return nil, errors.New("not what carboy net log --json writes")
		}
	} else {
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				lines = append(lines, line)
			}
			if len(lines) > MaxRecords {
				break
			}
		}
	}
	if len(lines) > MaxRecords {
		return nil, fmt.Errorf("more than %d records", MaxRecords)
	}
	out := make([]api.NetRecord, len(lines))
	for i, line := range lines {
		if err := strict.Unmarshal(line, &out[i]); err != nil {
			return nil, fmt.Errorf("record %d: %w", i+1, err)
		}
		if problem := wrong(&out[i]); problem != "" {
			return nil, fmt.Errorf("record %d: %s", i+1, problem)
		}
		if i > 0 && out[i].Seq <= out[i-1].Seq {
			return nil, fmt.Errorf("record %d: its number %d does not follow %d", i+1, out[i].Seq, out[i-1].Seq)
		}
	}
	return out, nil
}

// wrong says what of a record can't be.
func wrong(r *api.NetRecord) string {
	switch {
	case r.Seq == 0:
		return "it has no number"
	case r.Verdict != allow && r.Verdict != deny && r.Verdict != asked:
		return "its verdict is neither allow nor deny"
	case !slices.Contains(protocols, r.Protocol):
		return "its protocol is none that there is"
	case r.Count < 0 || r.Sent < 0 || r.Received < 0:
		return "it counts less than nothing"
	}
	for _, s := range append([]string{r.Host, r.Path, r.Method, r.Rule, r.Code, r.Reason, r.Result, r.Address}, r.Secrets...) {
		if len(s) > maxText {
			return "one of its texts is longer than a record keeps"
		}
	}
	if r.Address != "" {
		if _, err := netip.ParseAddrPort(r.Address); err != nil {
			return "its address is none"
		}
	}
	return ""
}

// Missing says in how far records are not all that there was; "" where they are.
func Missing(records []api.NetRecord) string {
	var lost, next uint64 = 0, 1
	unwritten := 0
	for i := range records {
		r := &records[i]
		if r.Seq > next {
			lost += r.Seq - next
		}
		next = r.Seq + 1
		if r.Code == netlog.CodeLost {
			unwritten += max(r.Count, 1)
		}
	}
	var parts []string
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d records are gone: what is kept is bounded", lost, next-1))
	}
	if unwritten > 0 {
		parts = append(parts, fmt.Sprintf("%d could not be written", unwritten))
	}
	return strings.Join(parts, ", and ")
}

// urlOf is the URL of a path as it was on the wire.
func urlOf(path string) *url.URL {
	u := &url.URL{RawPath: path}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return &url.URL{Path: path}
	}
	u.Path = plain
	return u
}

// cut reports whether a record has a request's path or method in part only.
func cut(r *api.NetRecord) bool {
	return strings.HasSuffix(r.Path, ellipsis) || strings.HasSuffix(r.Method, ellipsis)
}

// unprovable says why a request can't be held against a policy; "" where it can.
func unprovable(r *api.NetRecord) string {
	t, ok := targetOf(r)
	switch {
	case r.Verdict != allow || r.Protocol == "dns" || r.Host == gateHost:
		return ""
	case !ok:
		return "its host or address is none that a rule can name"
	case t.protocol != policy.ProtocolHTTP:
		return ""
	case cut(r):
		return "it is longer than the record keeps"
	case !sayable(r.Method):
		return "its method is none that a rule can name"
	}
	return ""
}

package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"unicode/utf8"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

// MaxBody bounds a probe's JSON, in bytes.
const MaxBody = 512 << 10

const maxName = 64 // bytes

// Decode reads a probe. What it does not know is an error, as is an attempt
// that could tell nothing.
func Decode(r io.Reader) (api.Probe, error) {
	var p api.Probe
	dec := json.NewDecoder(io.LimitReader(r, MaxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return api.Probe{}, fmt.Errorf("read the probe: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return api.Probe{}, errors.New("read the probe: something follows the object")
	}
	return p, check(p)
}

// check refuses a probe that can't be made.
func check(p api.Probe) error {
	if n := len(p.Attempts); n == 0 || n > api.MaxAttempts {
		return fmt.Errorf("attempts: %d of them; from 1 to %d are possible", n, api.MaxAttempts)
	}
	if p.TimeoutMS < 1 || p.TimeoutMS > api.MaxProbeMS {
		return fmt.Errorf("timeout_ms: %d is not between 1 and %d", p.TimeoutMS, api.MaxProbeMS)
	}
	seen := map[string]bool{}
	for i, a := range p.Attempts {
		if a.Name == "" || len(a.Name) > maxName || !utf8.ValidString(a.Name) || seen[a.Name] {
			return fmt.Errorf("attempt %d: %.64q is no name, or another attempt's", i, a.Name)
		}
		seen[a.Name] = true
		if _, err := parse(a); err != nil {
			return fmt.Errorf("attempt %s: %w", a.Name, err)
		}
	}
	return nil
}

// parse checks an attempt and returns its address: of RAW none, of ICMP with
// port 0.
func parse(a api.Attempt) (to netip.AddrPort, err error) {
	if a.Want != api.WantOpen && a.Want != api.WantRefused {
		return to, fmt.Errorf("want: %.64q is neither %s nor %s", a.Want, api.WantOpen, api.WantRefused)
	}
	if len(a.Send) > api.MaxProbeBytes || len(a.Expect) > api.MaxProbeBytes {
		return to, fmt.Errorf("more than %d bytes to send or expect", api.MaxProbeBytes)
	}
	if len(a.Expect) > 0 && len(a.Send) == 0 {
		return to, errors.New("expect: nothing is sent to be answered")
	}
	switch a.Network {
	case api.TCP, api.UDP:
		if to, err = netip.ParseAddrPort(a.Address); err != nil || to.Port() == 0 {
			return to, fmt.Errorf("address: %.64q is no address with a port", a.Address)
		}
		if a.Network == api.UDP && len(a.Send) == 0 {
			return to, errors.New("send: nothing; over udp only an answer tells anything")
		}
	case api.ICMP:
		addr, err := netip.ParseAddr(a.Address)
		if err != nil {
			return to, fmt.Errorf("address: %.64q is no address", a.Address)
		}
		to = netip.AddrPortFrom(addr, 0)
	case api.RAW:
		if a.Address != "" {
			return to, fmt.Errorf("address: %.64q, where a raw socket has none", a.Address)
		}
	default:
		return to, fmt.Errorf("network: %.64q is none of tcp, udp, icmp and raw", a.Network)
	}
	if a.Network != api.TCP && a.Network != api.UDP && len(a.Send) > 0 {
		return to, fmt.Errorf("send: %s sends what it sends", a.Network)
	}
	if to.Addr().Zone() != "" {
		return to, fmt.Errorf("address: %.64q has a zone", a.Address)
	}
	return to, nil
}

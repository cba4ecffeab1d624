package account

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

// noID is the id that means "leave as it is" to setresuid and chown. A user
// with it would keep the agent's own rights.
const noID = 1<<32 - 1

// parseUser returns the first user called name, as passwd has it.
func parseUser(passwd, name string) (Account, error) {
	return parseEntry(passwd, func(f []string) bool { return f[0] == name })
}

// parseUID is parseUser by an id.
func parseUID(passwd string, uid uint32) (Account, error) {
	return parseEntry(passwd, func(f []string) bool {
		id, err := parseID(f[2])
		return err == nil && id == uid && checkName(f[0]) == nil
	})
}

func parseEntry(passwd string, is func(fields []string) bool) (Account, error) {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) < 7 || !is(f) {
			continue
		}
		uid, err := parseID(f[2])
		if err != nil {
			return Account{}, fmt.Errorf("uid in etc/passwd: %w", err)
		}
		gid, err := parseID(f[3])
		if err != nil {
			return Account{}, fmt.Errorf("gid in etc/passwd: %w", err)
		}
		return Account{
			Name: f[0], UID: uid, GID: gid,
			Home:  absolute(f[5], "/"),
			Shell: absolute(f[6], defaultShell),
		}, nil
	}
	return Account{}, ErrUnknown
}

// parseGroups returns the groups that list name as a member, without gid.
// Too many are an error: to leave one out would change who may do what.
func parseGroups(group, name string, gid uint32) ([]uint32, error) {
	seen := map[uint32]bool{gid: true}
	var ids []uint32
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) < 4 || !slices.Contains(strings.Split(f[3], ","), name) {
			continue
		}
		id, err := parseID(f[2])
		if err != nil || seen[id] {
			continue // a group without an id gives no right
		}
		if len(ids) == maxGroups {
			return nil, fmt.Errorf("more than %d groups in etc/group", maxGroups)
		}
		seen[id] = true
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// parseID takes decimal digits alone.
func parseID(s string) (uint32, error) {
	if s == "" || len(s) > 10 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%.16q is not a number", s)
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == noID {
		return 0, fmt.Errorf("%q is out of range", s)
	}
	return uint32(n), nil
}

// absolute returns p cleaned, or other where p can't be used as a path.
func absolute(p, other string) string {
	if !path.IsAbs(p) || len(p) > maxPath || strings.ContainsFunc(p, isControl) {
		return other
	}
	return path.Clean(p)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// FromHeader returns the user whom a request names, in envd's form:
// "Authorization: Basic " and the base64 of "name:". What follows the colon
// is ignored: the channel is trusted, and the name is a choice, not a proof.
// ok is false where the header is missing or of another scheme; a Basic
// header that does not parse is an error.
func FromHeader(h http.Header) (name string, ok bool, err error) {
	scheme, text, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", false, nil
	}
	text = strings.TrimSpace(text)
	if len(text) > 4*maxName {
		return "", false, errors.New("authorization header: the user's name is too long")
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", false, errors.New("authorization header: not valid base64")
	}
	name, _, found := strings.Cut(string(b), ":")
	if !found {
		return "", false, errors.New("authorization header: no colon after the user's name")
	}
	if name == "" {
		return "", false, errors.New("authorization header: the user's name is empty")
	}
	return name, true, nil
}

package account

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
)

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

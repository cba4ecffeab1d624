package trust

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	resolvConf = "/etc/resolv.conf"
	hostsFile  = "/etc/hosts"
)

// noNetwork has C libraries ask the sandbox itself, where the agent says of every
// name that there is no such one. Where it can't listen, glibc is told so by the
// kernel; musl is not, and gives up after no time at all, which glibc takes for a second.
const noNetwork = `# This sandbox has no network: there are no names.
nameserver 127.0.0.1
options timeout:0 attempts:1
`

// localhost is what a file of hosts begins with where an image has none.
const localhost = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// gateResolves begins the file that names the gate.
const gateResolves = "# The sandbox's gate answers, and asks others for what is allowed.\n"

// NoNetwork has every look-up of a name below root fail at once, whatever name
// servers the image has.
func NoNetwork(root string) error {
	t, err := openRootFS(root)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.rewrite(resolvConf, noNetwork); err != nil {
		return fmt.Errorf("%s: %w", resolvConf, err)
	}
	return nil
}

// resolver names the gate's resolver, in a file of the sandbox's own whatever
// link the image has in its place.
func (in *installer) resolver() error {
	var b strings.Builder
	b.WriteString(gateResolves)
	for _, a := range in.o.Nameservers {
		b.WriteString("nameserver " + a.String() + "\n")
	}
	b.WriteString("options timeout:3 attempts:2\n")
	return in.rewrite(resolvConf, b.String())
}

// rewrite makes a file have those contents, unless it has them.
func (t *rootFS) rewrite(name, text string) error {
	if f, err := t.read(name); err == nil && string(f.data) == text {
		return nil
	}
	return t.write(name, ordinary([]byte(text)))
}

// hosts adds the gate's name. Links of the image are not followed, but what
// they lead to is kept.
func (in *installer) hosts() error {
	if in.o.Gate == "" {
		return nil
	}
	text := localhost
	name, err := in.final(hostsFile)
	if err == nil {
		var f file
		if f, err = in.read(name); err == nil {
			text = string(f.data)
		}
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == in.o.Gate { // from an earlier start, maybe at another address
			continue
		}
		b.WriteString(line)
	}
	if kept := b.String(); kept != "" && !strings.HasSuffix(kept, "\n") {
		b.WriteString("\n")
	}
	for _, a := range slices.Compact(slices.Clone(in.o.Nameservers)) {
		fmt.Fprintf(&b, "%s\t%s\n", a, in.o.Gate)
	}
	return in.rewrite(hostsFile, b.String())
}

// bundleVariables name a file with all that a program trusts, instead of what
// it would trust without.
var bundleVariables = []string{
	"SSL_CERT_FILE",      // OpenSSL, Go, Ruby, uv, rustls
	"REQUESTS_CA_BUNDLE", // Python's requests, conda
	"CURL_CA_BUNDLE",
	"PIP_CERT",
	"GIT_SSL_CAINFO",
	"CARGO_HTTP_CAINFO",
	"AWS_CA_BUNDLE",
	"NIX_SSL_CERT_FILE",
	"HTTPLIB2_CA_CERTS",
	"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",   // gRPC outside Go and Java
	"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", // gcloud
	"NODE_EXTRA_CA_CERTS",
	"DENO_CERT",
}

// additions are those of them that name what is trusted besides.
var additions = map[string]bool{"NODE_EXTRA_CA_CERTS": true, "DENO_CERT": true}

// environment is what programs that keep authorities of their own need to be
// told. Java has no variable that it does not announce on standard error, so
// there is none for it.
func (in *installer) environment() map[string]string {
	env := map[string]string{}
	for _, name := range bundleVariables {
		switch {
		case additions[name] && in.exists(ownFile):
			env[name] = ownFile
		case !additions[name] && in.main != "":
			env[name] = in.main
		}
	}
	return env
}

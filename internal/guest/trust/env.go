package trust

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
		case additions[name] && in.exists(certFile):
			env[name] = certFile
		case !additions[name] && in.main != "":
			env[name] = in.main
		}
	}
	return env
}

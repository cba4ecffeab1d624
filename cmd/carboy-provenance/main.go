// Command carboy-provenance writes a statement of where the files of a release came
// from, in the form of in-toto with the predicate of SLSA provenance. It is a step of
// packaging, and not installed.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// repository is where the source is, as a package URL has it.
const repository = "git+https://github.com/carboy-sandbox/carboy"

// statement is in-toto's Statement v1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

// resource is in-toto's ResourceDescriptor.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// provenance is SLSA's Provenance v1, without times and names of a run: the same
// source gives the same bytes.
type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: carboy-provenance COMMIT VERSION FLAGS FILE...")
		os.Exit(2)
	}
	s, err := describe(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
	if err == nil {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "carboy-provenance:", err)
		os.Exit(1)
	}
}

// describe states that files were built from a commit, and from the modules of the
// go.sum in the working directory.
func describe(commit, version, flags string, files []string) (statement, error) {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, f := range files {
		sum, err := digest(f)
		if err != nil {
			return s, err
		}
		s.Subject = append(s.Subject, resource{Name: filepath.Base(f), Digest: sum})
	}
	d := &s.Predicate.BuildDefinition
	d.BuildType = "https://github.com/carboy-sandbox/carboy/scripts/release.sh"
	d.ExternalParameters = map[string]string{"repository": repository, "version": version}
	d.InternalParameters = map[string]string{"go": runtime.Version(), "flags": flags}
	d.ResolvedDependencies = []resource{
		{URI: repository, Digest: map[string]string{"gitCommit": commit}},
		{Name: "go", URI: "pkg:generic/go@" + strings.TrimPrefix(runtime.Version(), "go")},
	}
	for _, f := range []string{"go.sum", "packaging/tools/go.sum"} {
		sum, err := digest(f)
		if err != nil {
			return s, err
		}
		d.ResolvedDependencies = append(d.ResolvedDependencies, resource{Name: f, Digest: sum})
	}
	s.Predicate.RunDetails.Builder.ID = d.BuildType
	return s, nil
}

func digest(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return map[string]string{"sha256": hex.EncodeToString(h.Sum(nil))}, nil
}

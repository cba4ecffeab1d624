package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxSecret bounds a secret's value, in bytes.
const maxSecret = 64 << 10

// checkSecretName refuses what is no secret's name. It does not repeat it: it
// may be the value, put in the wrong place.
func checkSecretName(name string) error {
	if sandbox.ValidSecret(name) {
		return nil
	}
	return usagef("that is no name of a secret").
		WithHint("a letter or _, then letters, digits and _: GITHUB_TOKEN")
}

// secretSource are the flags that say where a secret's value is. None of them:
// on the terminal.
type secretSource struct {
	env, file, command string
	ttl                time.Duration
	stdin              bool // "-" was given
}

func (f *secretSource) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&f.env, "from-env", "", "`VAR` take the value of a variable here")
	fs.StringVar(&f.file, "from-file", "", "`FILE` have the daemon read FILE, as you")
	fs.StringVar(&f.command, "command", "", "`COMMAND` have the daemon run COMMAND, as you and without a shell; what it prints is the value")
	fs.Var(durationValue{&f.ttl}, "ttl", "`DURATION` use what the command printed for that long (default once)")
}

// none reports whether nothing says where the value is.
func (f *secretSource) none() bool {
	return f.env == "" && f.file == "" && f.command == "" && !f.stdin
}

// check refuses sources that exclude each other. rest is what follows NAME.
func (f *secretSource) check(what string, rest []string) error {
	if len(rest) > 0 {
		if rest[0] != "-" { // it may be the value
			return usagef("%s: only - can stand after NAME: others could see a value there", what).
				WithHint("leave it out to be asked for it, or use - for stdin")
		}
		f.stdin = true
	}
	given := 0
	for _, set := range []bool{f.env != "", f.file != "", f.command != "", f.stdin} {
		if set {
			given++
		}
	}
	switch {
	case given > 1:
		return usagef("%s: a secret comes from one place: --from-env, --from-file, --command or -", what)
	case f.ttl != 0 && f.command == "":
		return usagef("%s: --ttl goes with --command alone", what)
	}
	return nil
}

// readSecret makes a request of what the flags say, and reads the value where
// it is read here.
func (a *app) readSecret(ctx context.Context, what, name string, f *secretSource) (*api.SecretRequest, error) {
	switch {
	case f.file != "":
		abs, err := filepath.Abs(f.file)
		if err != nil {
			return nil, fmt.Errorf("--from-file: %w", err)
		}
		if _, err := os.Stat(abs); err != nil {
			return nil, usagef("--from-file %s: %v", quoteArg(f.file), pathless(err))
		}
		return &api.SecretRequest{File: abs}, nil
	case f.command != "":
		argv, err := secretCommandArgs(f.command)
		if err != nil {
			return nil, usagef("--command: %v", err)
		}
		return &api.SecretRequest{Command: argv, TTLMillis: f.ttl.Milliseconds()}, nil
	case f.env != "":
		v, err := envSecret("--from-env", f.env, a.env.LookupEnv)
		return &api.SecretRequest{Value: v}, err
	case f.stdin:
		v, err := readSecretFrom(a.env.Stdin)
		if err != nil {
			return nil, usagef("%s: stdin: %v", what, err)
		}
		return &api.SecretRequest{Value: v}, nil
	}
	v, err := a.promptSecret(ctx, what, name)
	return &api.SecretRequest{Value: v}, err
}

// envSecret takes a secret from a variable.
func envSecret(flag, name string, lookup func(string) (string, bool)) (*api.SecretValue, error) {
	v, ok := lookup(name)
	if !ok || v == "" {
		if checkEnvName(name) != nil || strings.ContainsAny(name, " \t") {
			return nil, usagef("%s: that is no name of a variable", flag)
		}
		return nil, usagef("%s: %s is not set here, or empty", flag, quoteArg(name))
	}
	if len(v) > maxSecret {
		return nil, usagef("%s: %s is larger than %s", flag, quoteArg(name), formatSize(maxSecret))
	}
	return (*api.SecretValue)(&v), nil
}

// fileSecret takes a secret from a file of the caller's.
func fileSecret(flag, name string) (*api.SecretValue, error) {
	f, err := beneath.OpenInput(name)
	if link := linkError(flag, err); link != nil {
		return nil, link
	}
	if err != nil {
		return nil, usagef("%s: %s: %v", flag, quoteArg(name), pathless(err))
	}
	defer func() { _ = f.Close() }() // it was only read
	v, err := readSecretFrom(f)
	if err != nil {
		return nil, usagef("%s: %s: %v", flag, quoteArg(name), pathless(err))
	}
	return v, nil
}

// readSecretFrom reads a value to the end of r, and drops one newline there:
// most programs that write files and pipes put one.
func readSecretFrom(r io.Reader) (*api.SecretValue, error) {
	if r == nil {
		return nil, errors.New("there is none")
	}
	b, err := io.ReadAll(io.LimitReader(r, maxSecret+2))
	if err != nil {
		return nil, err
	}
	v := strings.TrimSuffix(string(b), "\n")
	switch {
	case v == "":
		return nil, errors.New("it is empty")
	case len(v) > maxSecret:
		return nil, fmt.Errorf("it is larger than %s", formatSize(maxSecret))
	}
	return (*api.SecretValue)(&v), nil
}

// promptSecret asks for a value on the terminal, which shows nothing of it.
func (a *app) promptSecret(ctx context.Context, what, name string) (*api.SecretValue, error) {
	f, ok := a.env.Stdin.(*os.File)
	if !ok || !isTerminal(f) {
		return nil, usagef("%s: nothing says where the value is, and stdin is no terminal", what).
			WithHint("use - to read it from stdin, or --from-env, --from-file or --command")
	}
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's mode: %w", err)
	}
	if _, err := io.WriteString(a.env.Stderr, "value of "+name+": "); err != nil {
		return nil, err
	}
	type reply struct {
		b   []byte
		err error
	}
	got := make(chan reply, 1)
	go func() {
		b, err := term.ReadPassword(fd)
		got <- reply{b, err}
	}()
	// A read of a terminal can't be called off: it is left for the process to
	// end, and the terminal gets its echo back.
	select {
	case <-ctx.Done():
		_ = term.Restore(fd, before)
		_, _ = io.WriteString(a.env.Stderr, "\n")
		return nil, context.Cause(ctx)
	case r := <-got:
		_, _ = io.WriteString(a.env.Stderr, "\n")
		switch {
		case errors.Is(r.err, io.EOF) || r.err == nil && len(r.b) == 0:
			return nil, sandbox.Errorf(sandbox.Denied, "no value was given: nothing was changed")
		case r.err != nil:
			return nil, fmt.Errorf("read the value: %w", r.err)
		}
		v := api.SecretValue(r.b)
		return &v, nil
	}
}

// secretCommandArgs splits a command into words as a shell would, and finds
// its program. What only a shell could do is refused.
func secretCommandArgs(s string) ([]string, error) {
	words, err := splitWords(s)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("it is empty")
	}
	prog, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("%s: there is no such program", quoteArg(words[0]))
	}
	if words[0], err = filepath.Abs(prog); err != nil {
		return nil, err
	}
	return words, nil
}

// splitWords splits s at spaces; quotes and backslashes are a shell's.
func splitWords(s string) (words []string, err error) {
	var word []byte
	inWord := false
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == '\'' && c != '\'', quote == '"' && c != '"' && c != '\\' && c != '$' && c != '`':
			word = append(word, c)
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\':
			if i++; i == len(s) {
				return nil, errors.New("it ends with a backslash")
			}
			if quote == '"' && s[i] != '"' && s[i] != '\\' && s[i] != '$' && s[i] != '`' {
				word = append(word, '\\')
			}
			word, inWord = append(word, s[i]), true
		case strings.IndexByte("$`", c) >= 0, quote == 0 && strings.IndexByte("|&;<>()*?#~\n", c) >= 0:
			return nil, fmt.Errorf("%q has a meaning for shells alone, and none runs it: quote it, or use sh -c", string(rune(c)))
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t':
			if inWord {
				words = append(words, string(word))
			}
			word, inWord = nil, false
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, string(word))
	}
	return words, nil
}

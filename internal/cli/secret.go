package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// checkSecretName refuses what is no secret's name. It does not repeat it: it
// may be the value, put in the wrong place.
func checkSecretName(name string) error {
	if sandbox.ValidSecret(name) {
		return nil
	}
	return usage.Errorf("that is no name of a secret").
		WithHint("a letter or _, then letters, digits and _: GITHUB_TOKEN")
}

// secretSource are the flags that say where a secret's value is. None of them:
// on the terminal.
type secretSource struct {
	env, file, command string
	ttl                time.Duration
	stdin              bool // "-" was given
	key                bool
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
			return usage.Errorf("%s: only - can stand after NAME: others could see a value there", what).
				WithHint("leave it out to be asked for it, or use - for stdin")
		}
		f.stdin = true
	}
	if f.key && f.none() {
		return usage.Errorf("%s: --key: a private key has many lines, and is not typed in", what).WithHint("--from-file FILE, or - for stdin")
	}
	given := 0
	for _, set := range []bool{f.env != "", f.file != "", f.command != "", f.stdin} {
		if set {
			given++
		}
	}
	switch {
	case given > 1:
		return usage.Errorf("%s: a secret comes from one place: --from-env, --from-file, --command or -", what)
	case f.ttl != 0 && f.command == "":
		return usage.Errorf("%s: --ttl goes with --command alone", what)
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
			return nil, usage.Errorf("--from-file %s: %v", shell.Word(f.file), usage.Pathless(err))
		}
		return &api.SecretRequest{File: abs}, nil
	case f.command != "":
		argv, err := secretCommandArgs(f.command)
		if err != nil {
			return nil, usage.Errorf("--command: %v", err)
		}
		return &api.SecretRequest{Command: argv, TTLMillis: f.ttl.Milliseconds()}, nil
	case f.env != "":
		v, err := launch.EnvSecret("--from-env", f.env, a.LookupEnv)
		return &api.SecretRequest{Value: v}, err
	case f.stdin:
		v, err := launch.ReadSecret(a.Stdin)
		if err != nil {
			return nil, usage.Errorf("%s: stdin: %v", what, err)
		}
		return &api.SecretRequest{Value: v}, nil
	}
	v, err := a.PromptSecret(ctx, what, name)
	return &api.SecretRequest{Value: v}, err
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
		return nil, fmt.Errorf("%s: there is no such program", shell.Word(words[0]))
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

// Package shell writes text that a POSIX shell reads. It runs none.
package shell

import "strings"

// Quote writes each argument so that a shell reads it as one word, with nothing
// in it that means anything, and a blank between two.
func Quote(args ...string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

// Word is Quote of one argument, which stays as it is where it means nothing to
// a shell: fit to be shown, too.
func Word(s string) string {
	const harmless = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_./:@%+=,"
	if s != "" && strings.Trim(s, harmless) == "" {
		return s
	}
	return Quote(s)
}

// WithPath has a login shell's command run with the PATH of env, if that has
// one: such a shell sets it anew.
func WithPath(command string, env map[string]string) string {
	if p, ok := env["PATH"]; ok {
		return "export PATH=" + Quote(p) + "\n" + command
	}
	return command
}

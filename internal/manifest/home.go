package manifest

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Home is what the agent's home is called among those that are kept for a directory: letters,
// digits and hyphens, at most 32. It is another for each bottle, agent and program, and for a
// repository's agent of the same name: what one of them leaves there, such as instructions that
// the program obeys, or what it could reach, is nothing for the others.
func (p *Plan) Home() string {
	const most = 32
	sum := sha256.Sum256([]byte(strings.Join([]string{p.Bottle, p.Origin, p.Agent, p.Provider}, "\x00")))
	mark := "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	name := p.Agent
	return name[:min(len(name), most-len(mark))] + mark
}

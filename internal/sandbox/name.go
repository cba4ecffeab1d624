package sandbox

import (
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

const (
	idPrefix       = "sb_"
	snapshotPrefix = "sn_"
	volumePrefix   = "vol_"
	idLetters      = "abcdefghijklmnopqrstuvwxyz234567"
	idLen          = 20 // of them after the prefix: 100 bits

	// MaxName is the longest name of a sandbox, in characters.
	MaxName = 63
)

// Names are meant to be read out and typed, so the words are short, common,
// and hard to confuse with one another.
var (
	adjectives = strings.Fields(`amber ample bold brave brisk calm clever cosy crisp daring eager early
		fair fond frank fresh gentle glad golden grand handy happy hardy honest jolly keen kind lively
		loyal lucky mellow merry mild modest neat nimble noble placid plucky polite proud quick quiet
		ready robust rosy royal shiny silent silver sleek snug sober solid spry steady sturdy sunny
		swift tidy vivid warm wise witty zesty`)
	animals = strings.Fields(`badger beaver bison bobcat camel canary condor coyote crane cricket curlew
		dingo dolphin donkey falcon ferret finch gecko gibbon heron hornet ibex iguana jackal jaguar
		kestrel koala lemur leopard linnet lizard llama lobster magpie mallard marmot marten minnow
		moose narwhal newt ocelot osprey otter panda pelican pigeon plover puffin python quail rabbit
		raven robin salmon seal sparrow stoat swan tapir tern toad trout turtle viper walrus weasel
		wombat yak zebra`)
)

var idEncoding = base32.NewEncoding(idLetters).WithPadding(base32.NoPadding)

// NewID returns "sb_" and 20 characters of base32 read from rand.
func NewID(rand io.Reader) (string, error) { return newID(idPrefix, rand) }

// NewSnapshotID returns "sn_" and 20 characters of base32 read from rand.
func NewSnapshotID(rand io.Reader) (string, error) { return newID(snapshotPrefix, rand) }

// NewVolumeID returns "vol_" and 20 characters of base32 read from rand.
func NewVolumeID(rand io.Reader) (string, error) { return newID(volumePrefix, rand) }

func newID(prefix string, rand io.Reader) (string, error) {
	var b [13]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", fmt.Errorf("read randomness for an id: %w", err)
	}
	return prefix + idEncoding.EncodeToString(b[:])[:idLen], nil
}

// ValidID reports whether id could have come from NewID. Such a string is
// safe as a file name.
func ValidID(id string) bool { return validID(idPrefix, id) }

// ValidSnapshotID reports whether id could have come from NewSnapshotID. Such
// a string is safe as a file name.
func ValidSnapshotID(id string) bool { return validID(snapshotPrefix, id) }

// ValidVolumeID reports whether id could have come from NewVolumeID. Such a
// string is safe as a file name.
func ValidVolumeID(id string) bool { return validID(volumePrefix, id) }

func validID(prefix, id string) bool {
	s, ok := strings.CutPrefix(id, prefix)
	return ok && len(s) == idLen && strings.Trim(s, idLetters) == ""
}

// NewName returns a name such as "brave-otter-4f2a", chosen by rand.
func NewName(rand io.Reader) (string, error) {
	var b [6]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", fmt.Errorf("read randomness for a name: %w", err)
	}
	pick := func(words []string, hi, lo byte) string {
		return words[(int(hi)<<8|int(lo))%len(words)]
	}
	return pick(adjectives, b[0], b[1]) + "-" + pick(animals, b[2], b[3]) + "-" + hex.EncodeToString(b[4:]), nil
}

// newToken returns the access token of a guest agent: 256 bits in hexadecimal.
func newToken(rand io.Reader) (string, error) {
	var b [32]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", fmt.Errorf("read randomness for a token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// ValidName reports whether name is 1 to 63 of a-z, 0-9 and "-", and starts
// with a letter.
func ValidName(name string) bool {
	if name == "" || len(name) > MaxName || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// refText returns what a caller called a sandbox, fit for an error: as it is
// where it could be a name or an ID, else quoted and cut.
func refText(ref string) string {
	if ValidName(ref) || ValidID(ref) {
		return ref
	}
	return fmt.Sprintf("%q", cut(ref, MaxName))
}

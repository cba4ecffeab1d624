package volume

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	keyName = "token.key"
	keySize = 32 // bytes

	tokenPrefix = "cvt_"
	maxToken    = 1024
	// TokenLife is how long a token is good for.
	TokenLife = 12 * time.Hour
)

// grant is what a token says: who signed it is the only one to make one.
type grant struct {
	Volume  string `json:"v"`
	Expires int64  `json:"e"`           // seconds since 1970
	Source  string `json:"s,omitempty"` // see Token
}

// openKey returns the key that tokens are signed with, made where there is none.
func openKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b = make([]byte, keySize)
		rand.Read(b)
		if err := durable.Write(path, b, durable.Options{}); err != nil { // half a key would be one for good
			return nil, fmt.Errorf("make key of volumes: %w", err)
		}
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("read key of volumes: %w", err)
	}
	if len(b) != keySize {
		return nil, sandbox.Errorf(sandbox.Internal, "%s is not a key", path).WithHint("move it away: a new one is made, and no token of before is good any more")
	}
	return b, nil
}

// Token returns what lets its holder read and write a volume's content, for
// TokenLife, and no longer than its source lives: the key of who asks for it. "" lives
// for ever.
func (s *Service) Token(v Volume, source string) string {
	b, err := json.Marshal(grant{Volume: v.ID, Expires: s.o.Now().Add(TokenLife).Unix(), Source: source})
	if err != nil {
		panic(err) // two words and a number
	}
	body := base64.RawURLEncoding.EncodeToString(b)
	return tokenPrefix + body + "." + base64.RawURLEncoding.EncodeToString(s.sign(body))
}

func (s *Service) sign(body string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(tokenPrefix + body))
	return mac.Sum(nil)
}

// granted reads a token. It reports false for one that is not ours, or no longer
// good.
func (s *Service) granted(token string) (g grant, ok bool) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(token) > maxToken {
		return grant{}, false
	}
	body, sum, ok := strings.Cut(rest, ".")
	// As text: decoders pass over line ends, and there is one way to write a token.
	if want := base64.RawURLEncoding.EncodeToString(s.sign(body)); !ok || !hmac.Equal([]byte(sum), []byte(want)) {
		return grant{}, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || json.Unmarshal(b, &g) != nil || !s.o.Now().Before(time.Unix(g.Expires, 0)) {
		return grant{}, false
	}
	s.mu.Lock()
	lives := s.lives
	s.mu.Unlock()
	return g, g.Source == "" || lives == nil || lives(g.Source)
}

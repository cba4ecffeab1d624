package tool

import (
	"encoding/base64"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/tools"
)

const maxName = 180 // bytes of an attachment's name

// media are the types that classify knows, by the end of the name.
var media = map[string]struct{ kind, media string }{
	"png": {tools.KindImage, "image/png"}, "jpg": {tools.KindImage, "image/jpeg"}, "jpeg": {tools.KindImage, "image/jpeg"},
	"gif": {tools.KindImage, "image/gif"}, "webp": {tools.KindImage, "image/webp"}, "bmp": {tools.KindImage, "image/bmp"},
	"wav": {tools.KindVoice, "audio/wav"}, "mp3": {tools.KindVoice, "audio/mp3"}, "silk": {tools.KindVoice, "audio/silk"},
	"amr": {tools.KindVoice, "audio/amr"}, "ogg": {tools.KindVoice, "audio/ogg"}, "m4a": {tools.KindVoice, "audio/m4a"},
	"aac": {tools.KindVoice, "audio/aac"},
}

// fallbacks are the names of attachments that have none.
var fallbacks = map[string]string{
	tools.KindImage: "image_%d.png", tools.KindVoice: "voice_%d.wav", tools.KindFile: "file_%d.bin",
}

// classify returns which kind of attachment a name is of, and the type that a
// data URL of it has; "" for a file.
func classify(name string) (kind, mediaType string) {
	dot := strings.LastIndexByte(name, '.')
	if m, ok := media[strings.ToLower(name[dot+1:])]; ok && dot >= 0 {
		return m.kind, m.media
	}
	return tools.KindFile, ""
}

// CleanName returns a name for a file that is made of letters, digits, dots,
// underscores and hyphens: the last part of name, or fallback where nothing is
// left of that.
func CleanName(name, fallback string) string {
	name = strings.TrimSpace(strings.ReplaceAll(name, `\`, "/"))
	name = name[strings.LastIndexByte(name, '/')+1:]
	name = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return -1
		case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune("._-", r):
			return r
		case r == ' ':
			return '_'
		}
		return -1
	}, strings.TrimSpace(strings.TrimLeft(name, ".- ")))
	name = strings.TrimLeft(name, ".-")
	if strings.Trim(name, "._-") == "" {
		return fallback
	}
	if len(name) <= maxName {
		return name
	}
	ext := path.Ext(name)
	if len(ext) > 16 {
		ext = ""
	}
	head, _ := first(name, maxName-len(ext))
	return head + ext
}

// names gives each attachment a name that no other has.
type names map[string]bool

func (n names) take(name string) string {
	ext := path.Ext(name)
	stem, free := strings.TrimSuffix(name, ext), name
	for i := 2; n[free]; i++ {
		free = fmt.Sprintf("%s-%d%s", stem, i, ext)
	}
	n[free] = true
	return free
}

// Decode returns what a platform has of an attachment: base64, as it is or in
// a data URL, and the type that the URL names. ok is false where there is
// nothing, where it is none, and where it is larger than 10 MiB.
func Decode(text string) (data []byte, mediaType string, ok bool) {
	mediaType = "application/octet-stream"
	if rest, is := strings.CutPrefix(text, "data:"); is {
		if head, tail, is := strings.Cut(rest, ";base64,"); is {
			mediaType, text = head, tail
		}
	}
	if text == "" || len(text) > base64.StdEncoding.EncodedLen(tools.MaxAttachmentBytes) {
		return nil, "", false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) > tools.MaxAttachmentBytes {
		return nil, "", false
	}
	return data, mediaType, true
}

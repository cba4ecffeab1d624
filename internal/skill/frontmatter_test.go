package skill_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

func TestParseFrontMatter(t *testing.T) {
	for name, tt := range map[string]struct {
		text         string
		meta         skill.Meta
		instructions string
	}{
		"test_parse_frontmatter_extracts_metadata_and_instructions":        {"---\nname: foo\ndescription: bar\n---\n\nDo the thing.\n", skill.Meta{Name: "foo", Description: "bar"}, "Do the thing.\n"},
		"test_parse_frontmatter_without_leading_marker_returns_whole_body": {"no frontmatter here\nsecond line\n", skill.Meta{}, "no frontmatter here\nsecond line\n"},
		"test_parse_frontmatter_first_line_not_marker":                     {"--- header\nname: foo\n---\nbody", skill.Meta{}, "--- header\nname: foo\n---\nbody"},
		"test_parse_frontmatter_unterminated_block_returns_whole_body":     {"---\nname: foo\nno closing marker\n", skill.Meta{}, "---\nname: foo\nno closing marker\n"},
		"test_parse_frontmatter_non_dict_yaml_is_discarded":                {"---\n- just\n- a\n- list\n---\nbody text", skill.Meta{}, "body text"},
		"test_parse_frontmatter_empty_metadata_block":                      {"---\n---\nbody only", skill.Meta{}, "body only"},
		"only-a-mark":           {"---", skill.Meta{}, "---"},
		"windows":               {"---\r\nname: foo\r\n---\r\n\r\nbody\r\n", skill.Meta{Name: "foo"}, "body\r\n"},
		"byte-order-mark":       {"\ufeff---\nname: foo\n---\nbody", skill.Meta{Name: "foo"}, "body"},
		"quoted":                {"---\nname: 'foo'\ndescription: \"a: b\"\n---\n", skill.Meta{Name: "foo", Description: "a: b"}, ""},
		"folded":                {"---\nname: foo\ndescription: >-\n  one\n  two\n---\n", skill.Meta{Name: "foo", Description: "one two"}, ""},
		"number":                {"---\nname: 007\n---\n", skill.Meta{Name: "007"}, ""},
		"others-are-there":      {"---\nname: foo\nallowed-tools: [a, b]\nmetadata: {x: {y: z}}\nlicense: &a MIT\ncopy: *a\n---\n", skill.Meta{Name: "foo"}, ""},
		"null":                  {"---\nname: foo\ndescription: null\ndisplay_name:\n---\n", skill.Meta{Name: "foo"}, ""},
		"one-that-is-a-comment": {"---\n# nothing\n---\nx", skill.Meta{}, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			meta, instructions, err := skill.ParseFrontMatter(tt.text)
			if err != nil || meta != tt.meta || instructions != tt.instructions {
				t.Errorf("got %+v, %q, %v, want %+v, %q", meta, instructions, err, tt.meta, tt.instructions)
			}
		})
	}
	for name, text := range map[string]string{
		"no-yaml":  "---\nname: [\n---\n",
		"a-list":   "---\nname: [a]\n---\n",
		"an-alias": "---\nx: &a y\nname: *a\n---\n",
		"too-deep": "---\nx: " + strings.Repeat("[", 15<<10) + "\n---\n",
		"too-many": "---\n" + strings.Repeat("a: b\n", 1000) + "---\n",
		"too-long": "---\nx: " + strings.Repeat("y", 17<<10) + "\n---\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := skill.ParseFrontMatter(text)
			fails(t, err, sandbox.Invalid, "front matter")
		})
	}
}

func TestBuildMarkdown(t *testing.T) {
	for name, tt := range map[string]struct{ in, want skill.Meta }{
		"test_build_skill_md_roundtrips_with_parse_frontmatter": {skill.Meta{Name: "foo", DisplayName: "Foo", Description: "desc"}, skill.Meta{Name: "foo", DisplayName: "Foo", Description: "desc"}},
		"test_build_skill_md_drops_blank_and_none_fields":       {skill.Meta{Name: "foo", DisplayName: "   "}, skill.Meta{Name: "foo"}},
		"a-mark-in-a-text":              {skill.Meta{Name: "a", Description: "x\n---\ny"}, skill.Meta{Name: "a", Description: "x\n---\ny"}},
		"what-yaml-would-take-for-more": {skill.Meta{Name: "a", Description: "Use when: # \"it\" [rains]"}, skill.Meta{Name: "a", Description: "Use when: # \"it\" [rains]"}},
		"words-of-yaml":                 {skill.Meta{Name: "true", DisplayName: "null", Description: "1.0"}, skill.Meta{Name: "true", DisplayName: "null", Description: "1.0"}},
		"other-languages":               {skill.Meta{Name: "天气", Description: "🌍 \u2028 é"}, skill.Meta{Name: "天气", Description: "🌍 \u2028 é"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := skill.BuildMarkdown(tt.in, "Hello.")
			got, instructions, err := skill.ParseFrontMatter(text)
			if err != nil || got != tt.want || instructions != "Hello." || !strings.HasPrefix(text, "---\n") {
				t.Errorf("got %+v, %q, %v of %q", got, instructions, err, text)
			}
		})
	}
	t.Run("test_build_skill_md_without_metadata_returns_instructions_only", func(t *testing.T) {
		if got := skill.BuildMarkdown(skill.Meta{}, "just instructions"); got != "just instructions" {
			t.Errorf("got %q", got)
		}
	})
}

func FuzzFrontMatter(f *testing.F) {
	for _, s := range []string{"---\nname: a\n---\nb", "---\n- x\n---", "---\na: &a [*a]\n---\n", "---\n? {}\n: x\n---\n", "---\n<<: *x\n---\n", "---\nname: |2\n  x\n---\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, instructions, err := skill.ParseFrontMatter(text)
		if err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Fatalf("got %v, want it to be invalid", err)
			}
			return
		}
		if !strings.HasSuffix(text, instructions) {
			t.Fatalf("%q are not the instructions of %q", instructions, text)
		}
		if !utf8.ValidString(m.Name + m.DisplayName + m.Description) {
			return // nothing that a store reads
		}
		for _, v := range []*string{&m.Name, &m.DisplayName, &m.Description} {
			if strings.TrimSpace(*v) == "" {
				*v = ""
			}
		}
		got, _, err := skill.ParseFrontMatter(skill.BuildMarkdown(m, "x"))
		if err != nil || got != m {
			t.Fatalf("got %+v, %v, want %+v", got, err, m)
		}
	})
}

package jupyter_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
)

func TestMessages(t *testing.T) {
	s := jupyter.NewSession("key")
	parts, id, err := s.Encode("execute_request", map[string]string{"code": "1"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Decode(append([][]byte{[]byte("topic")}, parts...))
	if err != nil || m.Header.ID != id || m.Header.Type != "execute_request" || string(m.Content) != `{"code":"1"}` {
		t.Errorf("Decode = %+v, %v", m, err)
	}
	if got := jupyter.ParentOf(parts[:5]); got != "" {
		t.Errorf("ParentOf = %q, want none", got)
	}
	for i := range parts {
		bad := append([][]byte{}, parts...)
		bad[i] = append(bytes.Clone(bad[i]), 'x')
		if _, err := s.Decode(bad); err == nil {
			t.Errorf("part %d can be changed", i)
		}
	}
	if _, err := jupyter.NewSession("other").Decode(parts); err == nil {
		t.Error("another key will do")
	}
}

func TestFind(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for file, text := range map[string]string{
		first + "/python3/kernel.json":  `{"argv": ["/venv/bin/python", "-f", "{connection_file}"], "language": "python"}`,
		second + "/python3/kernel.json": `{"argv": ["/usr/bin/python3"], "language": "python"}`,
		second + "/ir/kernel.json":      `{"argv": ["R"], "language": "R", "display_name": "R"}`,
		second + "/broken/kernel.json":  `{"argv": [`,
		second + "/empty/kernel.json":   `{"argv": []}`,
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	specs := jupyter.Find([]string{"/nowhere", first, second})
	if len(specs) != 2 {
		t.Fatalf("specs = %+v", specs)
	}
	for language, want := range map[string]string{"python": "/venv/bin/python", "r": "R", "ir": "R", "bash": ""} {
		got, ok := jupyter.ForLanguage(specs, language)
		if ok != (want != "") || ok && got.Argv[0] != want {
			t.Errorf("%s: %+v, %v, want %s", language, got, ok, want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(`{"argv": ["R"], "language": "R", "env": {"A": "b"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := jupyter.ParseSpec(data); err == nil && (len(s.Argv) == 0 || s.Argv[0] == "") {
			t.Errorf("%+v", s)
		}
	})
}

func FuzzDecode(f *testing.F) {
	s := jupyter.NewSession("key")
	parts, _, err := s.Encode("status", map[string]string{"execution_state": "idle"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Join(parts, []byte{0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		split := bytes.Split(data, []byte{0})
		_ = jupyter.ParentOf(split)
		m, err := s.Decode(split)
		if err == nil && m.Header.Type != "status" {
			t.Errorf("another's message was taken: %+v", m)
		}
	})
}

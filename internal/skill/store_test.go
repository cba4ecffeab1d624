package skill_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

func TestScoped(t *testing.T) {
	t.Run("test_scoped_skill_stores_isolate_same_named_skill_between_workspaces", func(t *testing.T) {
		s := open(t)
		a, b := scoped(t, s, "workspace-a"), scoped(t, s, "workspace-b")
		for _, own := range []*skill.Store{a, b} {
			got, err := own.InstallZip(t.Context(), demoZip(t), skill.ZipQuery{Filename: "demo.zip", Suffix: "upload"})
			if err != nil {
				t.Fatal(err)
			}
			if root := got[0].PackageRoot; !strings.HasPrefix(root, own.Root()+"/") {
				t.Errorf("got %s, want one below %s", root, own.Root())
			}
			if got := names(must2(own.List(t.Context()))); got != "demo" {
				t.Errorf("got %q, want demo", got)
			}
		}
		if a.Root() == b.Root() {
			t.Error("got one root for two namespaces")
		}
		if got := names(must2(s.List(t.Context()))); got != "" {
			t.Errorf("the store itself: got %q, want none", got)
		}
	})
	t.Run("test_scoped_skill_store_rejects_cross_workspace_scan_and_import", func(t *testing.T) {
		s := open(t)
		a, b := scoped(t, s, "workspace-a"), scoped(t, s, "workspace-b")
		stolen := create(t, b, "private", "workspace-b secret")
		for _, from := range []*skill.Store{a, s} {
			_, err := from.Scan(t.Context(), stolen.PackageRoot, nil)
			fails(t, err, sandbox.Denied, "Workspace skill root")
			_, err = from.Create(t.Context(), sessions.SkillInput{Name: "stolen", PackageRoot: stolen.PackageRoot}, nil)
			if err == nil || exists(from.Root(), "stolen") {
				t.Errorf("import: got %v, want a refusal", err)
			}
		}
		if _, err := b.Scan(t.Context(), stolen.PackageRoot, nil); err != nil {
			t.Errorf("its own: %v", err)
		}
	})
	t.Run("test_scoped_skill_store_does_not_follow_directory_symlinks", func(t *testing.T) {
		s := open(t)
		a, b := scoped(t, s, "workspace-a"), scoped(t, s, "workspace-b")
		private := create(t, b, "private", "workspace-b secret")
		create(t, a, "own", "x")
		if err := os.Symlink(private.PackageRoot, filepath.Join(a.Root(), "linked")); err != nil {
			t.Fatal(err)
		}
		// Its files neither.
		write(t, filepath.Join(a.Root(), "half"), file{"x", ""})
		if err := os.Symlink(filepath.Join(private.PackageRoot, "SKILL.md"), filepath.Join(a.Root(), "half", "SKILL.md")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(private.PackageRoot, filepath.Join(a.Root(), "own", "out")); err != nil {
			t.Fatal(err)
		}
		if got := names(must2(a.List(t.Context()))); got != "own" {
			t.Errorf("got %q, want own", got)
		}
		_, err := a.Read(t.Context(), "own", "out/SKILL.md")
		fails(t, err, sandbox.Invalid, "stay within the skill package root")
		_, err = a.Write(t.Context(), "own", "out/SKILL.md", "mine")
		if err == nil || !strings.Contains(read(t, private.PackageRoot, "SKILL.md"), "secret") {
			t.Errorf("write through a link: got %v", err)
		}
		_, err = a.Scan(t.Context(), filepath.Join(a.Root(), "linked"), nil)
		if err == nil {
			t.Error("scan through a link: got no error")
		}
	})
}

func TestNamespace(t *testing.T) {
	t.Run("a-bad-namespace", func(t *testing.T) {
		for _, ns := range []string{"a/b", "..", ".", ".x", `a\b`, "a\x00", "é", strings.Repeat("x", 200)} {
			if _, err := open(t).Scoped(ns); err == nil {
				t.Errorf("%q: got no error", ns)
			}
		}
	})
	t.Run("owners", func(t *testing.T) {
		o := skill.Owners{Store: open(t), Own: "uid:0"}
		for owner, want := range map[string]string{"uid:0": "skills", "uid:7": "owner-ef50ff11d951b08556455a28", "box:ws-0123": "ws-0123"} {
			if s, err := o.Of(owner); err != nil || filepath.Base(s.Root()) != want {
				t.Errorf("%q: got %v, %v, want %s", owner, s, err, want)
			}
		}
		if _, err := o.Of("box:../x"); err == nil {
			t.Error("got no error")
		}
	})
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRoot(t *testing.T) {
	t.Run("test_root_uses_configured_absolute_host_root", func(t *testing.T) {
		dir := t.TempDir()
		if got, want := openAt(t, filepath.Join(dir, "my-skills")).Root(), filepath.Join(dir, "my-skills"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("through-a-link", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(write(t, filepath.Join(dir, "real")), filepath.Join(dir, "link")); err != nil || os.Mkdir(filepath.Join(dir, "real"), 0o755) != nil {
			t.Fatal(err)
		}
		s := openAt(t, filepath.Join(dir, "link"))
		k := create(t, s, "x", "y")
		if want := filepath.Join(dir, "real", "x"); k.PackageRoot != want {
			t.Errorf("got %s, want %s", k.PackageRoot, want)
		}
		if _, err := s.Scan(t.Context(), filepath.Join(dir, "link", "x"), nil); err != nil {
			t.Errorf("by the name it was configured with: %v", err)
		}
	})
}

func TestList(t *testing.T) {
	t.Run("test_list_skills_on_empty_root_creates_dir_and_returns_empty", func(t *testing.T) {
		s := open(t)
		got, err := s.List(t.Context())
		if err != nil || got == nil || len(got) != 0 || !exists(s.Root()) {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("test_list_skills_returns_managed_skills_sorted_by_updated_at", func(t *testing.T) {
		s := open(t)
		older := pkg(t, s.Root(), "older")
		pkg(t, s.Root(), "newer")
		past := time.Unix(1000, 0)
		if err := os.Chtimes(filepath.Join(older, "SKILL.md"), past, past); err != nil {
			t.Fatal(err)
		}
		got := must2(s.List(t.Context()))
		if names(got) != "newer older" {
			t.Fatalf("got %q", names(got))
		}
		if want := "1970-01-01T00:16:40.000000+00:00"; got[1].UpdatedAt != want {
			t.Errorf("got %s, want %s", got[1].UpdatedAt, want)
		}
		text, _ := json.Marshal(got[0])
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		want := "created_at description display_name entry_file instructions name package_root python_project updated_at"
		var keys []string
		for k := range fields {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("test_list_skills_skips_corrupt_entries", func(t *testing.T) {
		s := open(t)
		pkg(t, s.Root(), "good")
		write(t, s.Root(), file{"bad/SKILL.md", "\xff\xfe\x00bad"}, file{"yaml/SKILL.md", "---\nname: [\n---\n"},
			file{"bad name/SKILL.md", "no name"}, file{"huge/SKILL.md", strings.Repeat("x", 1<<20+1)})
		if err := os.MkdirAll(filepath.Join(s.Root(), "dir", "SKILL.md"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := names(must2(s.List(t.Context()))); got != "good" {
			t.Errorf("got %q, want good", got)
		}
	})
	t.Run("test_skill_discovery_fails_fast_at_entry_limit", func(t *testing.T) {
		dir := t.TempDir()
		for i := range 3 {
			write(t, dir, file{fmt.Sprintf("directory-%d/x", i), ""})
		}
		root := must2(os.OpenRoot(dir))
		defer root.Close()
		fails(t, skill.FindAtMost(root, 2), sandbox.Exhausted, "entry limit")
		if err := skill.FindAtMost(root, 6); err != nil {
			t.Error(err)
		}
	})
}

func TestGet(t *testing.T) {
	t.Run("depth", func(t *testing.T) {
		s := open(t)
		pkg(t, filepath.Join(s.Root(), "1/2/3/4/5"), "six")
		pkg(t, filepath.Join(s.Root(), "1/2/3/4/5/6b"), "seven")
		pkg(t, filepath.Join(s.Root(), "1/2/3/4/5/six"), "within") // of another
		if got := names(must2(s.List(t.Context()))); got != "six" {
			t.Errorf("got %q, want six", got)
		}
	})
	t.Run("test_get_skill_returns_match_and_none_for_missing", func(t *testing.T) {
		s := open(t)
		pkg(t, s.Root(), "alpha")
		if k, err := s.Get(t.Context(), "alpha"); err != nil || k.Name != "alpha" {
			t.Errorf("got %v, %v", k, err)
		}
		_, err := s.Get(t.Context(), "does-not-exist")
		fails(t, err, sandbox.NotFound, `Skill "does-not-exist" not found`)
	})
	t.Run("test_skill_python_project_metadata_is_computed_by_box_runtime_store", func(t *testing.T) {
		s := open(t)
		if k := create(t, s, "python-demo", "run it"); k.PythonProject {
			t.Error("got a Python project, want none")
		}
		if _, err := s.Write(t.Context(), "python-demo", "requirements.txt", "requests==2.32.0\n"); err != nil {
			t.Fatal(err)
		}
		if k := must2(s.Get(t.Context(), "python-demo")); !k.PythonProject {
			t.Error("got none, want a Python project")
		}
	})
	t.Run("test_load_skill_package_falls_back_to_dir_name_without_frontmatter", func(t *testing.T) {
		s := open(t)
		write(t, s.Root(), file{"plainskill/SKILL.md", "Just a body\n"})
		k := must2(s.Get(t.Context(), "plainskill"))
		if k.DisplayName != "plainskill" || k.Description != "" || k.Instructions != "Just a body\n" {
			t.Errorf("got %+v", k)
		}
	})
	t.Run("test_load_skill_package_supports_lowercase_entry_file", func(t *testing.T) {
		s := open(t)
		write(t, s.Root(), file{"lower/skill.md", "---\nname: lower\n---\n\nbody\n"})
		if k := must2(s.Get(t.Context(), "lower")); k.EntryFile != "skill.md" || k.Instructions != "body\n" {
			t.Errorf("got %+v", k)
		}
	})
}

func TestCreate(t *testing.T) {
	t.Run("test_create_skill_minimal_managed", func(t *testing.T) {
		s := open(t)
		k, err := s.Create(t.Context(), sessions.SkillInput{Name: "fresh", DisplayName: ptr("Fresh Skill"), Description: ptr("desc"), Instructions: ptr("do stuff")}, nil)
		if err != nil || k.Name != "fresh" || k.DisplayName != "Fresh Skill" || k.Description != "desc" || k.Instructions != "do stuff" {
			t.Errorf("got %+v, %v", k, err)
		}
		if want := "---\nname: fresh\ndisplay_name: Fresh Skill\ndescription: desc\n---\n\ndo stuff"; read(t, s.Root(), "fresh", "SKILL.md") != want {
			t.Errorf("got %q", read(t, s.Root(), "fresh", "SKILL.md"))
		}
	})
	t.Run("test_create_skill_rejects_duplicate", func(t *testing.T) {
		s := open(t)
		create(t, s, "dup", "x")
		_, err := s.Create(t.Context(), sessions.SkillInput{Name: "dup", Instructions: ptr("y")}, nil)
		fails(t, err, sandbox.Conflict, "already exists")
		if k := must2(s.Get(t.Context(), "dup")); k.Instructions != "x" {
			t.Errorf("got %q, want what was there", k.Instructions)
		}
	})
	t.Run("test_create_skill_rejects_invalid_names", func(t *testing.T) {
		for name, part := range map[string]string{
			"": "required", "   ": "required", "bad name!": "letters, numbers", "--": "letters, numbers", "../x": "letters, numbers",
			"a/b": "letters, numbers", "\xff": "letters, numbers", strings.Repeat("a", 65): "exceed 64", "tenants": "reserved",
		} {
			_, err := open(t).Create(t.Context(), sessions.SkillInput{Name: name}, nil)
			fails(t, err, sandbox.Invalid, part)
		}
		for _, name := range []string{" trimmed ", strings.Repeat("a", 64), "天气", "a-b_9"} {
			create(t, open(t), name, "x")
		}
	})
	t.Run("test_create_skill_imports_external_package_by_copy", func(t *testing.T) {
		s, outside := open(t), t.TempDir()
		src := pkg(t, outside, "imported")
		write(t, src, file{"extra.txt", "payload"}, file{"bin/run", "#!"}, file{".venv/x", "cache"})
		if err := os.Chmod(filepath.Join(src, "bin/run"), 0o4777); err != nil {
			t.Fatal(err)
		}
		in := sessions.SkillInput{Name: "copied", PackageRoot: src, Description: ptr(" ")}
		_, err := s.Create(t.Context(), in, nil)
		fails(t, err, sandbox.Denied, "Workspace skill root")
		_, err = s.Create(t.Context(), in, skill.Below(t.TempDir()))
		fails(t, err, sandbox.Denied, "allowed_mount_roots")
		k, err := s.Create(t.Context(), in, skill.Below(t.TempDir(), outside))
		if err != nil || k.Name != "copied" || k.DisplayName != "Imported" || k.Description != "A test skill" || k.Instructions != "Body.\n" {
			t.Fatalf("got %+v, %v", k, err)
		}
		managed := filepath.Join(s.Root(), "copied")
		if k.PackageRoot != managed || read(t, managed, "extra.txt") != "payload" || exists(managed, ".venv") {
			t.Errorf("got %s", k.PackageRoot)
		}
		if st, err := os.Stat(filepath.Join(managed, "bin/run")); err != nil || st.Mode() != 0o755 {
			t.Errorf("got mode %v, %v, want 0755", st.Mode(), err)
		}
	})
	t.Run("a-package-with-a-link-is-not-imported", func(t *testing.T) {
		s, outside := open(t), t.TempDir()
		src := pkg(t, outside, "linked")
		if err := os.Symlink("/etc/passwd", filepath.Join(src, "x")); err != nil {
			t.Fatal(err)
		}
		_, err := s.Create(t.Context(), sessions.SkillInput{Name: "linked", PackageRoot: src}, skill.Below(outside))
		fails(t, err, sandbox.Invalid, "links")
		if exists(s.Root(), "linked") || exists(s.Root(), ".carboy", "stage") {
			t.Error("something of it stayed")
		}
		if err := os.Remove(filepath.Join(src, "x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), sessions.SkillInput{Name: "linked", PackageRoot: src}, skill.Below(outside)); err != nil {
			t.Errorf("without it: %v", err)
		}
	})
}

func TestCreateWithin(t *testing.T) {
	t.Run("test_create_skill_imports_in_place_when_package_under_root", func(t *testing.T) {
		s := open(t)
		dir := write(t, filepath.Join(s.Root(), "pkgdir"), file{"SKILL.md", "---\nname: placeholder\ndescription: imported desc\n---\n\nImported body\n"}, file{"asset.txt", "payload"})
		k, err := s.Create(t.Context(), sessions.SkillInput{Name: "native", PackageRoot: dir, DisplayName: ptr("Overridden")}, nil)
		if err != nil || k.Name != "native" || k.DisplayName != "Overridden" || k.Description != "imported desc" || k.PackageRoot != dir || read(t, dir, "asset.txt") != "payload" {
			t.Errorf("got %+v, %v", k, err)
		}
	})
	t.Run("in-place-where-it-would-not-be-found", func(t *testing.T) {
		s := open(t)
		pkg(t, s.Root(), "outer")
		for _, dir := range []string{pkg(t, filepath.Join(s.Root(), "outer"), "inner"), pkg(t, filepath.Join(s.Root(), "1/2/3/4/5/6"), "deep"), s.Root(), filepath.Join(s.Root(), ".carboy")} {
			if _, err := s.Create(t.Context(), sessions.SkillInput{Name: "native", PackageRoot: dir}, nil); err == nil {
				t.Errorf("%s: got no error", dir)
			}
		}
	})
	t.Run("test_create_skill_missing_external_dir_raises", func(t *testing.T) {
		dir := t.TempDir()
		_, err := open(t).Create(t.Context(), sessions.SkillInput{Name: "ghost", PackageRoot: filepath.Join(dir, "nope")}, skill.Below(dir))
		fails(t, err, sandbox.NotFound, "Directory does not exist")
	})
	t.Run("test_create_skill_external_target_collision_raises", func(t *testing.T) {
		s, outside := open(t), t.TempDir()
		write(t, s.Root(), file{"clash/SKILL.md", md("other")})
		_, err := s.Create(t.Context(), sessions.SkillInput{Name: "clash", PackageRoot: pkg(t, outside, "clash")}, skill.Below(outside))
		fails(t, err, sandbox.Conflict, "already exists")
		_, err = s.Create(t.Context(), sessions.SkillInput{Name: "clash"}, nil)
		fails(t, err, sandbox.Conflict, "already exists")
	})
}

func TestUpdate(t *testing.T) {
	t.Run("test_update_skill_changes_metadata_and_instructions", func(t *testing.T) {
		s := open(t)
		create(t, s, "edit", "old")
		k, err := s.Update(t.Context(), "edit", sessions.SkillInput{DisplayName: ptr("Edited"), Description: ptr("new desc"), Instructions: ptr("new body")})
		if err != nil || k.DisplayName != "Edited" || k.Description != "new desc" || k.Instructions != "new body" {
			t.Errorf("got %+v, %v", k, err)
		}
		k, err = s.Update(t.Context(), "edit", sessions.SkillInput{Description: ptr("")})
		if err != nil || k.DisplayName != "Edited" || k.Description != "" || k.Instructions != "new body" {
			t.Errorf("what is not given stays: got %+v, %v", k, err)
		}
	})
	s := open(t)
	create(t, s, "keep", "x")
	k := create(t, s, "samep", "x")
	for name, tt := range map[string]struct {
		skill string
		in    sessions.SkillInput
		kind  sandbox.Kind
		part  string
	}{
		"test_update_skill_missing_raises":                 {"ghost", sessions.SkillInput{Instructions: ptr("x")}, sandbox.NotFound, "not found"},
		"test_update_skill_rename_rejected":                {"keep", sessions.SkillInput{Name: "renamed"}, sandbox.Invalid, "Renaming"},
		"test_update_skill_changing_package_root_rejected": {"keep", sessions.SkillInput{PackageRoot: "/tmp/somewhere-else"}, sandbox.Invalid, "Updating package_root is not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Update(t.Context(), tt.skill, tt.in)
			fails(t, err, tt.kind, tt.part)
		})
	}
	t.Run("test_update_skill_same_package_root_allowed", func(t *testing.T) {
		got, err := s.Update(t.Context(), "samep", sessions.SkillInput{PackageRoot: k.PackageRoot, Instructions: ptr("changed")})
		if err != nil || got.Instructions != "changed" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestDelete(t *testing.T) {
	t.Run("test_delete_skill_removes_managed_directory", func(t *testing.T) {
		s := open(t)
		create(t, s, "gone", "x")
		if got, err := s.Delete(t.Context(), "gone"); err != nil || got.Deleted != "gone" || exists(s.Root(), "gone") {
			t.Errorf("got %v, %v", got, err)
		}
		_, err := s.Get(t.Context(), "gone")
		fails(t, err, sandbox.NotFound, "not found")
	})
	t.Run("test_delete_skill_missing_raises", func(t *testing.T) {
		_, err := open(t).Delete(t.Context(), "ghost")
		fails(t, err, sandbox.NotFound, "not found")
	})
	t.Run("test_delete_skill_rejects_skill_at_root_level", func(t *testing.T) {
		s := open(t)
		write(t, s.Root(), file{"SKILL.md", "---\nname: rootskill\n---\n\nbody\n"})
		_, err := s.Delete(t.Context(), "rootskill")
		fails(t, err, sandbox.Invalid, "Only managed skills")
		if !exists(s.Root(), "SKILL.md") {
			t.Error("it is gone")
		}
	})
	t.Run("test_managed_install_root_for_package", func(t *testing.T) {
		s := open(t)
		pkg(t, filepath.Join(s.Root(), "topdir"), "inner")
		if _, err := s.Delete(t.Context(), "inner"); err != nil || exists(s.Root(), "topdir") {
			t.Errorf("got %v, and topdir is there: %v", err, exists(s.Root(), "topdir"))
		}
	})
	t.Run("others-beside-it-stay", func(t *testing.T) {
		s := open(t)
		pkg(t, filepath.Join(s.Root(), "repo"), "one")
		pkg(t, filepath.Join(s.Root(), "repo"), "two")
		if _, err := s.Delete(t.Context(), "one"); err != nil || names(must2(s.List(t.Context()))) != "two" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("test_delete_skill_imported_external_is_managed", func(t *testing.T) {
		s, outside := open(t), t.TempDir()
		src := pkg(t, outside, "external")
		if _, err := s.Create(t.Context(), sessions.SkillInput{Name: "external", PackageRoot: src}, skill.Below(outside)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Delete(t.Context(), "external"); err != nil || !exists(src) {
			t.Errorf("got %v", err)
		}
	})
}

func TestScan(t *testing.T) {
	base := t.TempDir()
	allow := skill.Below(base)
	s := open(t)
	one := pkg(t, filepath.Join(base, "scan"), "one")
	pkg(t, filepath.Join(base, "multi"), "a")
	pkg(t, filepath.Join(base, "multi"), "b")
	pkg(t, filepath.Join(base, "deep/1/2"), "three")
	write(t, base, file{"empty/x", ""})
	for name, p := range map[string]string{
		"test_scan_directory_finds_single_skill":    one,
		"test_scan_directory_finds_skill_in_subdir": filepath.Dir(one),
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := s.Scan(t.Context(), p, allow); err != nil || k.Name != "one" || k.PackageRoot != one {
				t.Errorf("got %+v, %v", k, err)
			}
		})
	}
	for name, tt := range map[string]struct {
		path string
		out  skill.Outside
		kind sandbox.Kind
		part string
	}{
		"test_scan_directory_missing_path_raises":    {base + "/nope", allow, sandbox.NotFound, "Directory does not exist"},
		"test_scan_directory_no_skill_raises":        {base + "/empty", allow, sandbox.Invalid, "No SKILL.md found"},
		"deeper-than-two":                            {base + "/deep", allow, sandbox.Invalid, "No SKILL.md found"},
		"test_scan_directory_multiple_skills_raises": {base + "/multi", allow, sandbox.Invalid, "Multiple skill directories found in " + base + "/multi. Please choose a more specific path: " + base + "/multi/a, " + base + "/multi/b"},

		"not-allowed":            {"/etc", allow, sandbox.Denied, "allowed_mount_roots"},
		"out-of-what-is-allowed": {base + "/../../etc", allow, sandbox.Denied, "allowed_mount_roots"},
		"nothing-allowed":        {one, nil, sandbox.Denied, "Workspace skill root"},
		"relative":               {"scan", allow, sandbox.Invalid, "absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Scan(t.Context(), tt.path, tt.out)
			fails(t, err, tt.kind, tt.part)
		})
	}
}

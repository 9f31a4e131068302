package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/skill"
)

func skillCall(name, file string) client.CallCreate {
	in, _ := json.Marshal(map[string]string{"name": name, "file": file}) // texts cannot fail
	if file == "" {
		in, _ = json.Marshal(map[string]string{"name": name})
	}
	return client.CallCreate{Tool: "skill", Input: in}
}

// skillDir makes a directory with a skill for each description, which has files.
func skillDir(t *testing.T, described map[string]string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, about := range described {
		put(name+"/SKILL.md", "---\nname: "+name+"\ndescription: "+about+"\nallowed-tools: bash\n---\nDo it.\n")
	}
	for name, text := range files {
		put(name, text)
	}
	return dir
}

// TestSkills: those of the host are listed, loaded and read file by file; the rules choose.
func TestSkills(t *testing.T) {
	h := newHouse(t)
	dir := skillDir(t, map[string]string{"release": "how we release", "secret": "x"},
		map[string]string{"release/notes/form.md": "form", "release/empty": "", "release/raw": "\xff", "broken/SKILL.md": "no"})
	h.set.Skills = skill.Load([]string{dir})
	h.set.Policy = rules(t, "[permission.skill]\n\"*\" = \"deny\"\nrelease = \"allow\"\nother = \"allow\"")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	set, err := h.m.Tools.Tools(t.Context(), alice, client.ToolQuery{Session: s.ID})
	if err != nil {
		t.Fatal(err)
	}
	text := set.Tools[len(set.Tools)-1].Description
	for _, want := range []string{"\n- `release`: how we release\n\n", "(1 more cannot be used"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the description:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") {
		t.Errorf("a skill that the rules deny is in the description:\n%s", text)
	}
	got := h.call(s.ID, skillCall("release", ""))
	want := "Do it.\n\n(It is made for these tools, and does not allow them: bash)\n\n(Files of the skill, to be given as `file`:\n\"empty\"\n\"notes/form.md\"\n\"raw\")"
	if got.IsError || got.Output != want || got.Title != "release" {
		t.Errorf("%+v\nwant %s", got, want)
	}
	for _, c := range []struct {
		name, file, want string
		bad              bool
	}{
		{"release", "notes/form.md", "form", false},
		{"release", "empty", "The file is empty.", false},
		{"release", "raw", "it is not text", true},
		{"release", "../secret/SKILL.md", "it is not a path below the directory of the skill", true},
		{"release", "none", "no such file", true},
		{"other", "", `there is no skill "other"; the skills are release, secret`, true},
	} {
		got := h.call(s.ID, skillCall(c.name, c.file))
		if got.IsError != c.bad || !strings.Contains(got.Output, c.want) || strings.Contains(got.Output, dir) {
			t.Errorf("%s %s: %+v", c.name, c.file, got)
		}
	}
	if got := h.call(s.ID, skillCall("secret", "")); got.Error == nil || got.Error.Code != client.CodeDenied {
		t.Errorf("a skill that the rules deny: %+v", got)
	}
}

// TestNoSkills: without one there is no such tool, and a reload may bring it.
func TestNoSkills(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	got := h.call(s.ID, skillCall("x", ""))
	if got.Error == nil || got.Error.Code != client.CodeUnknownTool || !strings.Contains(got.Error.Message, "[skills] paths of the configuration names no directory") {
		t.Errorf("%+v", got.Error)
	}
	set, err := h.m.Tools.Tools(t.Context(), alice, client.ToolQuery{Session: s.ID})
	if err != nil || len(set.Absent) != 1 || !strings.Contains(set.Absent[0].Why, "there are no skills here") {
		t.Errorf("%+v, %v", set, err)
	}
	h.set.Skills = skill.Load([]string{skillDir(t, map[string]string{"x": "x"}, nil)})
	h.m.Reload(h.set)
	if got := h.call(s.ID, skillCall("x", "")); got.IsError {
		t.Errorf("after a reload: %+v", got)
	}
	if now, err := h.m.Tools.Tools(t.Context(), alice, client.ToolQuery{Session: s.ID}); err != nil || now.Revision == set.Revision || len(now.Absent) != 0 {
		t.Errorf("after a reload: %+v, %v", now, err)
	}
}

// TestSkillsWithoutMounts: where a sandbox cannot have their directories it is made without them,
// and says so.
func TestSkillsWithoutMounts(t *testing.T) {
	h := newHouse(t)
	dir := skillDir(t, map[string]string{"x": "x"}, map[string]string{"x/run": "x"})
	if err := os.Chmod(filepath.Join(dir, "x/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.set.Skills = skill.Load([]string{dir})
	h.open()
	for err, want := range map[error]int{sandbox.ErrUnsupported: 0, sandbox.ErrMountTarget: 0, nil: 1} {
		h.host.fail("mounts", err)
		s := h.create(alice, client.SessionCreate{})
		if got := len(h.host.box(s.ID).spec.Mounts); got != want {
			t.Errorf("%v: %d mounts, want %d", err, got, want)
		}
		if noted := strings.Contains(strings.Join(s.Notes, "\n"), "scripts of skills are not in the sandbox"); noted != (want == 0) {
			t.Errorf("%v: the notes are %q", err, s.Notes)
		}
	}
}

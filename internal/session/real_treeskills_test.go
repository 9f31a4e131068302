package session

import (
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/skill"
)

// TestRealSkillsOfTree: those of a worktree are offered where the configuration says so, as they
// are now; nothing that a hostile tree has instead of one is followed, waited for or hidden.
func TestRealSkillsOfTree(t *testing.T) {
	m := openReal(t, newRealHouse(t))
	set := *m.settings.Load()
	set.Skills = skill.Load([]string{skillDir(t, map[string]string{"release": "ours"}, nil)})
	set.Policy = rules(t, "permission = { \"*\" = \"allow\", external_directory = \"allow\", skill = { \"*\" = \"allow\", secret = \"deny\" }, read = { \"*\" = \"allow\", \"**/unread/*\" = \"deny\" } }")
	m.Reload(set)
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	made := realCall(t, m, s.ID, "bash", object{"command": `set -e
put() { mkdir -p "$1"; printf -- '---\nname: %s\ndescription: %s\n---\nDo %s.\n' "${1##*/}" "$2" "$2" >"$1/SKILL.md"; }
mkdir -p .toold .opencode
put .claude/skills/good first; put .claude/skills/release theirs; put .claude/skills/secret hidden; put .claude/skills/unread unseen
put .opencode/skills/good second; put .claude/skills/wrong x; mv .claude/skills/wrong .claude/skills/other
mkdir .claude/skills/pipe .claude/skills/huge .claude/skills/raw .claude/skills/link .claude/skills/none .claude/skills/dir
mkfifo .claude/skills/pipe/SKILL.md; mkdir .claude/skills/dir/SKILL.md
{ cat .claude/skills/good/SKILL.md; head -c 300000 /dev/zero | tr '\0' x; } >.claude/skills/huge/SKILL.md
printf -- '---\nname: raw\ndescription: \377\n---\n' >.claude/skills/raw/SKILL.md
ln -s /etc/passwd .claude/skills/link/SKILL.md
ln -s good .claude/skills/alias
ln -s /etc .toold/skills`})
	if made.IsError {
		t.Fatal(made.Output)
	}
	if got := realCall(t, m, s.ID, "skill", object{"name": "good"}); !got.IsError || !strings.Contains(got.Output, `there is no skill "good"`) {
		t.Errorf("where it is off: %+v", got)
	}
	set.Worktrees.Skills = true
	m.Reload(set)
	described := func() string {
		has, err := m.Tools.Tools(t.Context(), mounter, client.ToolQuery{Session: s.ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range has.Tools {
			if d.Name == "skill" {
				return d.Description
			}
		}
		t.Fatal("the tool is not there")
		return ""
	}
	text := described()
	at := s.Worktree.Target + "/.claude/skills/"
	for _, want := range []string{
		"\n- `release`: ours\n", "\n- `good` (not checked by anybody: the worktree has it, at `" + at + "good`): first",
		// release, other, pipe, huge, raw, link, dir, unread, the second good, .toold/skills
		"(10 more cannot be used",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "unseen") {
		t.Errorf("a skill that the rules deny is in\n%s", text)
	}
	for name, want := range map[string]string{
		"good":    "Do first.\n\n(It is a skill of the worktree, which nobody has checked. Its files are in " + at + "good)",
		"release": "Do it.",
		"pipe":    "it is not a regular file", "dir": "it is not a regular file", "link": "a link leads elsewhere", "alias": "a link leads elsewhere",
		"unread": "cannot be read: reading it is denied by", "huge": "more than 65536 bytes", "raw": "it is not UTF-8", "other": "its name is wrong",
		"goood": "did you mean good", "../../x": `there is no skill "../../x"`,
	} {
		if got := realCall(t, m, s.ID, "skill", object{"name": name}); !strings.Contains(got.Output, want) {
			t.Errorf("%s: got %q, want %q", name, got.Output, want)
		}
	}
	if got := realCall(t, m, s.ID, "skill", object{"name": "good", "file": "SKILL.md"}); !got.IsError || !strings.Contains(got.Output, "read its files there, in "+at+"good") {
		t.Errorf("%+v", got)
	}
	// Many entries are cut, with a count; front matter is that of now.
	changed := realCall(t, m, s.ID, "bash", object{"command": `cd .opencode/skills; for i in $(seq 1000); do echo a$i; done | xargs mkdir; cd ../..
sed -i 's/first/third/' .claude/skills/good/SKILL.md`})
	if changed.IsError {
		t.Fatal(changed.Output)
	}
	if text = described(); !strings.Contains(text, "`): third") || !strings.Contains(text, "(10 more cannot be used") {
		t.Errorf("after a change:\n%s", text)
	}
}

package tool

import _ "embed"

//go:embed skill.md
var skillDescription string

// Bounds of the input, in bytes.
const (
	maxSkillName = 64
	maxSkillFile = 1024
)

// SkillFact is what a description says of one skill. Tree is its directory in a worktree, ""
// for one of the host.
type SkillFact struct{ Name, Description, Tree string }

func skillTool() *Definition {
	return &Definition{
		Name:        "skill",
		Description: skillDescription,
		By:          ByDaemon,
		Needs:       NeedsSkills,
		alike:       []string{"activateskill", "loadskill", "useskill"},
		also:        aliases{fields: map[string]string{"skill": "name", "skill_name": "name"}},
		Traits:      Traits{ReadOnly: true, Idempotent: true, NoSlot: true},
		Truncate:    truncateHead,
		decode:      func(v values) Input { return &Skill{Name: v.text("name"), File: v.text("file")} },
		input: object(
			required("name", text(1, maxSkillName, "The name of the skill.")),
			optional("file", text(1, maxSkillFile, "A file of the skill, as its instructions name it. Without it the instructions are given.")),
		),
	}
}

// Skill is the input of skill.
type Skill struct{ Name, File string }

// Access implements Input.
func (in *Skill) Access(*Reader) Access {
	return Access{Title: in.Name, Requests: []Request{{Permission: PermissionSkill, Pattern: in.Name, Save: in.Name}}}
}

package tool

import (
	_ "embed"
	"regexp"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run/patch"
	"github.com/toold/toold/internal/tool/shell"
)

//go:embed apply_patch.md
var applyPatchDescription string

func applyPatchTool() *Definition {
	return &Definition{
		Name:        "apply_patch",
		Description: applyPatchDescription,
		alike:       []string{"applydiff", "gitapply"},
		also: aliases{
			tools:   []string{"applypatch", "patch"},
			fields:  map[string]string{"patchText": "patch", "patch_text": "patch", "input": "patch", "diff": "patch"},
			text:    "patch",
			rewrite: patchWords, rewrites: []string{wordsAlias},
		},
		Traits:   changes,
		Truncate: truncateHead,
		decode:   aPatch,
		check:    checkPatch,
		rename: func(v values, to func(string) string) bool {
			text, changed := patch.Rename(v.text("patch"), to)
			if changed {
				v["patch"] = text
			}
			return changed
		},
		input: object(
			required("patch", text(1, 0, "The whole patch, from *** Begin Patch to *** End Patch, or a unified diff.")),
		),
	}
}

// patchWords takes a patch that is given as the words of a command, ["apply_patch", PATCH].
func patchWords(v values) (used []string) {
	list, _ := v["command"].([]any)
	if _, has := v["patch"]; has || len(list) != 2 {
		return nil
	}
	name, _ := list[0].(string)
	text, is := list[1].(string)
	if !is || name != "apply_patch" && name != "applypatch" {
		return nil
	}
	v["patch"] = text
	delete(v, "command")
	return []string{wordsAlias}
}

// heredoc is how a shell is told to run apply_patch, which is no program here, in a directory or where it is.
var heredoc = regexp.MustCompile(`^\s*(?:cd\s+([\w./@+~][\w./@+~-]*|'[^'~-][^']*'|"[^"$\x60\\~-][^"$\x60\\]*")\s*(?:&&|;|\n)\s*)?apply_?patch\s+<<-?\s*['"]?(\w+)['"]?\r?\n`)

// asPatch takes a command that is no more than apply_patch with a patch for that tool. Its relative
// paths begin where the command would run.
func asPatch(v values) (string, values) {
	var text string
	for _, key := range []string{"command", "cmd"} {
		switch given := v[key].(type) {
		case string:
			text = given
		case []any:
			var words []string
			for _, w := range given {
				word, _ := w.(string)
				words = append(words, word)
			}
			if len(words) == 2 && (words[0] == "apply_patch" || words[0] == "applypatch") {
				text = "apply_patch <<EOF\n" + words[1] + "\nEOF"
			} else {
				text = shell.FromWords(words)
			}
		}
	}
	m := heredoc.FindStringSubmatch(text)
	if m == nil || v.text("stdin") != "" {
		return "", nil
	}
	end := m[2]
	body, ended := strings.CutSuffix(strings.TrimSpace(text[len(m[0]):]), "\n"+end)
	if !ended || strings.Contains("\n"+body+"\n", "\n"+end+"\n") {
		return "", nil
	}
	dirs := []string{strings.Trim(m[1], `'"`)} // the last one first
	for _, key := range []string{"workdir", "cwd", "directory", "dir_path"} {
		dirs = append(dirs, v.text(key))
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		renamed, changed := patch.Rename(body, func(p string) string {
			if strings.HasPrefix(p, "/") || asMeant(p) != p {
				return p
			}
			return strings.TrimSuffix(dir, "/") + "/" + p
		})
		if !changed { // a form of which the paths cannot be told, or only absolute ones
			return "", nil
		}
		body = renamed
		if strings.HasPrefix(dir, "/") || asMeant(dir) != dir {
			break
		}
	}
	return "apply_patch", values{"command": []any{"apply_patch", body}}
}

// patchInput is the input of apply_patch: the paths that its patch names, and those of files
// whose content it looks at or moves elsewhere.
type patchInput struct{ paths, reads []string }

func aPatch(v values) Input {
	files, err := patch.Parse(v.text("patch"))
	if err != nil {
		return &patchInput{} // checkPatch has refused it
	}
	return &patchInput{patch.Paths(files), patch.Reads(files)}
}

// checkPatch refuses what is no patch.
func checkPatch(v values) []client.Violation {
	if _, err := patch.Parse(v.text("patch")); err != nil {
		return []client.Violation{{Path: "/patch", Message: err.Error()}}
	}
	return nil
}

// Shown implements Visible.
func (in *patchInput) Shown() (map[string]string, bool) {
	return map[string]string{"path": strings.Join(in.paths, ", ")}, false
}

// Access implements Input. Every file that is written, removed, or moved from or to is
// asked for. A file whose lines must be there, or whose content goes elsewhere, is read.
func (in *patchInput) Access(*Reader) Access {
	var a accessBuilder
	for _, p := range in.paths {
		a.add(Request{Permission: PermissionEdit, Pattern: p, Path: p, Write: true})
	}
	for _, p := range in.reads {
		a.add(Request{Permission: PermissionRead, Pattern: p, Path: p})
	}
	if len(in.paths) == 0 {
		a.add(Request{Permission: PermissionEdit, Write: true})
	}
	access := a.access()
	access.Title = patch.Title(in.paths)
	return access
}

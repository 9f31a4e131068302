package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// contentTable says of every tool which permission it asks for each path of its input, by what it
// does with what is there: a path whose content it shows, moves elsewhere, or lets decide whether the call
// can be done is read. "shows" is what the rules for "read" filter in files that the input does
// not name. The paths are those of a file whose content must not be shown.
var contentTable = []struct{ tool, input, asks, shows string }{
	{"bash", `{"command":"true"}`, "bash true", ""},
	{"bash", `{"command":"true <.env >out"}`, "bash true <.env >out, edit out, external_directory out, external_directory .env", ""},
	{"read", `{"file_path":".env"}`, "read .env", "names"},
	{"write", `{"file_path":".env","content":"x"}`, "edit .env", ""},
	{"edit", `{"file_path":".env","old_string":"a","new_string":"b"}`, "edit .env, read .env", "names"},
	{"edit", `{"file_path":".env","old_string":"","new_string":"b"}`, "edit .env", "names"},
	{"multiedit", `{"file_path":".env","edits":[{"old_string":"GUESS","new_string":"b"},{"old_string":"impossible","new_string":"c"}]}`, "edit .env, read .env", "names"},
	{"multiedit", `{"file_path":".env","edits":[{"old_string":"","new_string":"b"},{"old_string":"b","new_string":"c"}]}`, "edit .env", "names"},
	{"apply_patch", envelopeOf("*** Update File: .env", "*** Move to: open.txt"), "edit .env, edit open.txt, read .env", ""},
	{"apply_patch", envelopeOf("*** Update File: .env", "@@", "-GUESS", "+GUESS2"), "edit .env, read .env", ""},
	{"apply_patch", envelopeOf("*** Update File: .env", "*** Move to: open.txt", "@@", "-a", "+b"), "edit .env, edit open.txt, read .env", ""},
	{"apply_patch", envelopeOf("*** Delete File: .env", "*** Add File: .env", "+x"), "edit .env", ""},
	{"apply_patch", patchOf("diff --git a/.env b/open.txt", "similarity index 100%", "rename from .env", "rename to open.txt"), "edit .env, edit open.txt, read .env", ""},
	{"apply_patch", patchOf("--- a/.env", "+++ b/.env", "@@ -1 +1 @@", "-a", "+b"), "edit .env, read .env", ""},
	{"apply_patch", patchOf("diff --git a/.env b/.env", "old mode 100644", "new mode 100755"), "edit .env", ""},
	{"glob", `{"pattern":"*","path":".env"}`, "glob * in .env", "names"},
	{"grep", `{"pattern":"x","path":".env"}`, "grep x in .env", "content"},
	{"list", `{"path":".env"}`, "list .env", "names"},
	{"todowrite", `{"todos":[]}`, "todowrite *", ""},
	{"todoread", `{}`, "todoread *", ""},
	{"batch", `{"calls":[]}`, "batch *", ""}, // its parts are calls of their own
	{"skill", `{"name":"x"}`, "skill x", ""},
	{"file_put", `{"from":"/o/1","path":".env"}`, "edit .env", ""}, // from is the daemon's own
	{"file_get", `{"path":".env"}`, "read .env", ""},
	{"file_put_tree", `{"path":".env","max_bytes":1}`, "edit .env", "content, changes"},
	{"file_get_tree", `{"path":".env","max_bytes":1}`, "read .env", "content"},
	{"file_format", `{"call":"c","command":["x"],"file_path":".env","timeout":1}`, "edit .env", ""}, // the program is the administrator's
}

func envelopeOf(lines ...string) string {
	return patchOf("*** Begin Patch", strings.Join(lines, "\n"), "*** End Patch")
}

func patchOf(lines ...string) string {
	text, _ := json.Marshal(map[string]string{"patch": strings.Join(lines, "\n") + "\n"})
	return string(text)
}

// TestContent: no tool lets the content of a file pass to where other rules judge it, nor says
// anything of it, without a request to read it.
func TestContent(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	rows := make(map[string]bool)
	for _, tt := range contentTable {
		rows[tt.tool] = true
		inv, err := r.ParseHidden(tt.tool, json.RawMessage(tt.input))
		if err != nil {
			t.Errorf("%s %s: %v", tt.tool, tt.input, err)
			continue
		}
		var asks []string
		for _, q := range inv.Input.Access(nil).Requests {
			text := q.Permission
			switch {
			case q.Outside:
				text = PermissionExternal + " " + q.Path
			case q.Search:
				text += fmt.Sprintf(" %s in %s", q.Pattern, q.Path)
			default:
				text += " " + q.Pattern
			}
			asks = append(asks, text)
		}
		if got := strings.Join(asks, ", "); got != tt.asks {
			t.Errorf("%s %s asks for\n%s, want\n%s", tt.tool, tt.input, got, tt.asks)
		}
		shows := map[Shown]string{ShowsNames: "names", ShowsContent: "content"}[inv.Tool.Shows]
		if inv.Tool.Changes {
			shows += ", changes"
		}
		if shows != tt.shows {
			t.Errorf("%s shows %q, want %q", tt.tool, shows, tt.shows)
		}
	}
	for _, d := range r.All() {
		if !rows[d.Name] {
			t.Errorf("%s has no row in contentTable: which paths does it name, and what becomes of their content?", d.Name)
		}
	}
}

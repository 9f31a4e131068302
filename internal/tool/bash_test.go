package tool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// asked is what a command asks, one request to a line, as the tables say it.
func asked(t *testing.T, command string) string {
	t.Helper()
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := NewRegistry().Parse("bash", input)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range inv.Input.Access(nil).Requests {
		switch {
		case r.Opaque:
			fmt.Fprintf(&b, "    the whole text: %s\n", r.Why)
		case r.Outside && r.Write:
			// Beside every edit.
		case r.Matched:
			// It is never asked about.
		case r.Outside && r.Path == "":
			fmt.Fprintf(&b, "    path  %s (not known)\n", r.Pattern)
		case r.Outside:
			fmt.Fprintf(&b, "    path  %s\n", r.Path)
		case r.Save != "":
			fmt.Fprintf(&b, "    %s  %s (always: %s)\n", r.Permission, r.Pattern, r.Save)
		default:
			fmt.Fprintf(&b, "    %s  %s\n", r.Permission, r.Pattern)
		}
	}
	return b.String()
}

// TestBashTables checks what the tables say that commands ask. A line that is
// not indented is a command.
func TestBashTables(t *testing.T) {
	files, err := filepath.Glob("testdata/bash/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for line := range strings.Lines(string(a.Files[0].Data)) {
				if !strings.HasPrefix(line, " ") {
					got.WriteString(line + asked(t, strings.TrimSuffix(line, "\n")))
				}
			}
			if *update {
				a.Files[0].Data = []byte(got.String())
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got.String() != string(a.Files[0].Data) {
				t.Errorf("got\n%s\nwant\n%s", got.String(), a.Files[0].Data)
			}
		})
	}
}

// quoted is a block of a document that is a section of a table.
var quoted = regexp.MustCompile("(?s)<!-- internal/tool/(testdata/bash/\\S+\\.txtar): calls -->\n```text\n(.*?)```\n")

// TestDocsQuoteBashTables: what docs/policy.md shows is what TestBashTables tries.
func TestDocsQuoteBashTables(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
		shown[m[1]] = true
		a, err := txtar.ParseFile(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if want := string(a.Files[0].Data); m[2] != want {
			t.Errorf("the document quotes %s as\n%s\nand it is\n%s", m[1], m[2], want)
		}
	}
	files, err := filepath.Glob("testdata/bash/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !shown[f] {
			t.Errorf("docs/policy.md does not show %s", f)
		}
	}
}

// What a command is given to read may be a script: it is judged with it, as a whole,
// and nothing of it is offered to be allowed always.
func TestBashStdinIsJudgedAsAWhole(t *testing.T) {
	parse := func(command, stdin string) *Invocation {
		input, err := json.Marshal(map[string]string{"command": command, "stdin": stdin})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := NewRegistry().Parse("bash", input)
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	for _, command := range []string{"bash", "python3", "cat", "git commit -F -", "ls; sh", "eval x"} {
		inv := parse(command, "echo 1")
		whole := 0
		for _, r := range inv.Input.Access(nil).Requests {
			if r.Permission != "bash" {
				continue
			}
			if r.Save != "" {
				t.Errorf("%s: %+v can be saved", command, r)
			}
			if r.Opaque && r.Pattern == command+" <<STDIN\necho 1" {
				whole++
			}
		}
		if whole != 1 {
			t.Errorf("%s: %+v", command, inv.Input.Access(nil))
		}
		if string(inv.Near()) == string(parse(command, "echo 2").Near()) || string(inv.Near()) == string(parse(command, "").Near()) {
			t.Errorf("%s: other input is the same call for loops", command)
		}
	}
	without := parse("cat", "")
	for _, r := range without.Input.Access(nil).Requests {
		if r.Opaque {
			t.Errorf("without input: %+v", r)
		}
	}
	if _, err := NewRegistry().Parse("bash", json.RawMessage(`{"command":"cat","stdin":"`+strings.Repeat("x", MaxStdin+1)+`"}`)); err == nil {
		t.Error("too long an input is taken")
	}
}

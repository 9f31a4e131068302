package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// quote is a fenced block of a document that is a section of a file here.
var quote = regexp.MustCompile("(?s)<!-- internal/policy/(testdata/\\S+\\.txtar): (\\S+) -->\n+```\\w*\n(.*?)```\n")

// TestDocsQuoteTheTables: what docs/policy.md shows is what TestFacts tries.
func TestDocsQuoteTheTables(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := make(map[string]bool)
	for _, m := range quote.FindAllStringSubmatch(string(text), -1) {
		a, err := txtar.ParseFile(m[1])
		if err != nil {
			t.Error(err)
			continue
		}
		quoted[m[1]] = true
		want := ""
		for _, f := range a.Files {
			if f.Name == m[2] {
				want = string(f.Data)
			}
		}
		if m[3] != want {
			t.Errorf("%s: the document quotes %s as\n%s\nand it is\n%s", m[1], m[2], m[3], want)
		}
	}
	if n, quotes := strings.Count(string(text), "<!-- internal/policy/"), len(quote.FindAllString(string(text), -1)); n != quotes {
		t.Errorf("%d marks of quotes, of which %d are followed by one", n, quotes)
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !quoted[f] {
			t.Errorf("docs/policy.md does not show %s", f)
		}
	}
}

package attack

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// attack is a row of the list: a test function of this package whose name begins
// with the row's id, and whose comment says after the id what is attempted.
type attack struct {
	test, id, title string
}

var (
	attackName  = regexp.MustCompile(`^Test([A-Z])(\d+)[A-Z]`)
	attackTitle = regexp.MustCompile(`^[A-Z]\d+[^:]*: ((?s:.*?)[^A-Z])\.(\s|$)`)
)

// attacks reads them from the source, by letter and number.
func attacks() ([]attack, error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, err
	}
	var list []attack
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !attackName.MatchString(fn.Name.Name) {
				continue
			}
			m := attackName.FindStringSubmatch(fn.Name.Name)
			title := attackTitle.FindStringSubmatch(fn.Doc.Text())
			if title == nil {
				return nil, fmt.Errorf("%s: the comment of %s must begin with %s%s: and a sentence that says what is attempted", name, fn.Name.Name, m[1], m[2])
			}
			list = append(list, attack{fn.Name.Name, m[1] + m[2], strings.Join(strings.Fields(title[1]), " ")})
		}
	}
	slices.SortFunc(list, func(a, b attack) int { return strings.Compare(sortKey(a), sortKey(b)) })
	return list, nil
}

func sortKey(a attack) string {
	n, _ := strconv.Atoi(a.id[1:])
	return fmt.Sprintf("%s%03d%s", a.id[:1], n, a.test)
}

const (
	tableBegin = "<!-- rows and tiers: written by go test ./test/attack -run TestTierTable -update -->\n"
	tableEnd   = "<!-- end of rows and tiers -->\n"
)

// tierTable is the table of rows and tiers, and its notes.
func tierTable(t *testing.T) string {
	t.Helper()
	list, err := attacks()
	must(t, err)
	var b, notes strings.Builder
	b.WriteString("| row | attempted |")
	for _, x := range tiers {
		fmt.Fprintf(&b, " %s |", x.title)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(tiers)+2) + "\n")
	n := 0
	results := map[string]map[string]string{}
	for _, x := range tiers {
		results[x.name] = recordedResults(x.name)
	}
	for _, a := range list {
		fmt.Fprintf(&b, "| `%s` | %s |", a.test, strings.ReplaceAll(a.title, "|", "\\|"))
		for _, x := range tiers {
			cell := results[x.name][a.test]
			switch {
			case x != tiers[0] && daemonAlone.MatchString(a.test):
				cell = "same"
			case cell == "":
				cell = "–"
			}
			for _, d := range differencesOf(a.test, x.name) {
				n++
				cell += fmt.Sprintf(" [%d]", n)
				fmt.Fprintf(&notes, "%d. %s, %s: %s. %s\n", n, a.id, x.title, d.what, d.why)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	if n > 0 {
		b.WriteString("\n" + notes.String())
	}
	return b.String()
}

// TestTierTable: docs/security.md shows what was recorded of each row on each
// tier, and the differences.
func TestTierTable(t *testing.T) {
	const path = "../../docs/security.md"
	text := read(path)
	head, rest, ok := strings.Cut(text, tableBegin)
	table, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table: want the lines\n%s%s", path, tableBegin, tableEnd)
	}
	want := tierTable(t)
	if *update {
		must(t, os.WriteFile(path, []byte(head+tableBegin+want+tableEnd+tail), 0o644))
		return
	}
	if table != want {
		t.Errorf("the table of %s is not what was recorded: go test ./test/attack -run TestTierTable -update", path)
	}
}

// TestDifferences: each names a row and a tier that there are, once. Each tier that
// must run has a result of each row, and none of what is no row.
func TestDifferences(t *testing.T) {
	list, err := attacks()
	must(t, err)
	known := map[string]bool{}
	for _, a := range list {
		known[a.test] = true
	}
	seen := map[string]bool{}
	for _, d := range differences {
		if !known[d.test] {
			t.Errorf("there is no row %s", d.test)
		}
		if !slices.ContainsFunc(tiers, func(x *tier) bool { return x.name == d.tier }) {
			t.Errorf("%s: there is no tier %q", d.test, d.tier)
		}
		if d.what == "" || d.why == "" || !strings.HasSuffix(d.why, ".") || strings.HasSuffix(d.what, ".") {
			t.Errorf("%s on %s: want a clause that says what, and a sentence that says why", d.test, d.tier)
		}
		for _, c := range append(d.checks, "") {
			key := d.test + " " + d.tier + " " + c
			if c != "" && seen[key] {
				t.Errorf("%s is there twice", key)
			}
			seen[key] = true
		}
	}
	for _, x := range tiers {
		results := recordedResults(x.name)
		for _, a := range list {
			if x.require != "" && results[a.test] == "" && (x == tiers[0] || !daemonAlone.MatchString(a.test)) {
				t.Errorf("%s has not been tried on %s: TOOLD_TEST_TIER=%s go test ./test/attack -run %s -update", a.test, x.name, x.name, a.test)
			}
		}
		for test := range results {
			if !known[test] {
				t.Errorf("%s has a result of %s, which is no row", x.name, test)
			}
		}
	}
}

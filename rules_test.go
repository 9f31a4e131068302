package toold_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What belongs where, and the tests that hold it:
//
//  1. The name of a tool stands only in its own files: TestToolNames. A tool can be added or
//     renamed without a search for those who ask for it by name.
//  2. Packages look down only: TestFloors, TestImportTable. What lives together (session), the
//     order of steps (call), what a call means (tool) and how a sandbox is made (drivers) can each
//     be changed alone.
//  3. Errors of the API are made in few packages: TestAnswers. The same failure has the same code
//     and words on every way to it.
//  4. An input is decoded once: TestInputIsDecodedOnce of package session counts, TestInputsAreRead
//     finds who would read the bytes again. Two readers may understand two things.
//  5. No speed trick is in the path of a call: TestNoTricks. The order of the steps stays readable,
//     and a trick stays where a benchmark shows whether it still gains.
//  6. What a program can check of docs/architecture.md is checked: TestFloors, TestImportTable,
//     TestSteps, TestPageNames, TestRecipes, TestLinks, TestCommandBlocks, and TestDocumentedFiles of
//     test/cli.
//  7. Nothing grows into one piece that cannot be cut: TestBounds.
//  8. An idle session costs the daemon nothing each second: TestTickers.

// tricks are speed tricks that the path of a call still has, with what they gain. None is added.
var tricks = map[string]string{
	"runtime.Gosched": "who waits for a call goes first",
	"growStack":       "a goroutine's stack is grown once",
	"touch":           "keeps growStack from being left out",
}

// pools are the packages that use memory again, with the benchmark that shows what it gains.
var pools = map[string]string{
	"internal/tool/run/root": "run.BenchmarkFileTools",
	"internal/wire":          "inside.BenchmarkBash",
}

// TestNoTricks: the packages that say in which order a call goes, session and call, have no
// pools, no memory by address, no advice for the scheduler or the compiler. Such things are behind
// the interface of what they speed up, where a benchmark shows what they gain.
func TestNoTricks(t *testing.T) {
	names, seen := declared(t), make(map[string]bool)
	inspect(t, func(pkg, at string, n ast.Node) {
		trick := trickOf(n)
		path := pkg == "internal/session" || pkg == "internal/call"
		switch {
		case trick == "" || !path && trick != "sync.Pool":
		case path:
			if seen[trick] = true; tricks[trick] == "" {
				t.Errorf("%s: %s has no place in the path of a call: put it behind the interface of what it speeds up", at, trick)
			}
		default:
			if seen[pkg] = true; !names[pools[pkg]] {
				t.Errorf("%s: %s has a pool; name in pools the benchmark that shows what it gains", at, pkg)
			}
		}
	})
	for _, gone := range slices.Concat(slices.Collect(maps.Keys(tricks)), slices.Collect(maps.Keys(pools))) {
		if !seen[gone] {
			t.Errorf("%s: it is no more: take it out of tricks or pools", gone)
		}
	}
}

// trickOf names the trick that n is, "" for none.
func trickOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		for _, trick := range [][2]string{
			{"sync", "Pool"}, {"runtime", "Gosched"}, {"runtime", "GC"}, {"runtime", "LockOSThread"}, {"unsafe", "Pointer"}, {"unsafe", "String"}, {"unsafe", "Slice"},
		} {
			if isSelector(n, trick[0], trick[1]) {
				return trick[0] + "." + trick[1]
			}
		}
	case *ast.FuncDecl:
		if n.Doc != nil && slices.ContainsFunc(n.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:") }) {
			return n.Name.Name
		}
	}
	return ""
}

// isSelector reports whether e is pkg.name.
func isSelector(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// inspect shows all nodes of our code without its tests: in which package, and where.
func inspect(t *testing.T, visit func(pkg, at string, n ast.Node)) {
	t.Helper()
	sources(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, "internal/") && !strings.HasPrefix(path, "cmd/") {
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if n != nil {
				visit(filepath.Dir(path), fmt.Sprint(set.Position(n.Pos())), n)
			}
			return true
		})
	})
}

// tickers are the files with one, and for how long it ticks. A thousand idle sessions with a
// ticker each would keep a processor awake.
var tickers = map[string]string{
	"internal/store/checkpoint.go": "one of the daemon",
	"internal/session/gc.go":       "one of the daemon",
	"internal/server/sse.go":       "while a client listens",
	"internal/mcp/call.go":         "while a client waits for a call",
	"internal/egress/watch.go":     "while the session has connections",
	"cmd/toold/notify.go":          "one of the daemon",
	"cmd/toold/door.go":            "one of the daemon",
}

// TestTickers: what a session needs now and then comes by a timer that is set when there is
// something to wait for.
func TestTickers(t *testing.T) {
	seen := make(map[string]bool)
	inspect(t, func(pkg, at string, n ast.Node) {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || pkg == "cmd/toolctl" || !isSelector(sel, "time", "NewTicker") && !isSelector(sel, "time", "Tick") {
			return
		}
		file, _, _ := strings.Cut(at, ":")
		if seen[file] = true; tickers[file] == "" {
			t.Errorf("%s: a ticker; set a timer where there is something to wait for, or name in tickers for how long it ticks", at)
		}
	})
	for file := range tickers {
		if !seen[file] {
			t.Errorf("%s: it has no ticker any more: take it out of tickers", file)
		}
	}
}

// TestTables: toolctl aligns columns in table.go alone.
func TestTables(t *testing.T) {
	inspect(t, func(pkg, at string, n ast.Node) {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || pkg != "cmd/toolctl" || strings.HasPrefix(at, "cmd/toolctl/diffstat.go:") { // that is git's
			return
		}
		if lit.Value == `"text/tabwriter"` || padded.MatchString(lit.Value) {
			t.Errorf("%s: %s aligns a column: use a table, or a flow", at, lit.Value)
		}
	})
}

// padded finds what fmt fills up with blanks.
var padded = regexp.MustCompile(`%(?:-[0-9*]|[0-9*]+s)`)

// counted finds a number with the plural of what it counts behind it.
var counted = regexp.MustCompile(`%d (?:more |other |new )?(?:approvals|attachments|attempts|bytes|caches|calls|changes|characters|checkpoints|commands|connections|conflicts|days|directories|edits|entries|errors|events|files|groups|hooks|hosts|hours|hunks|images|inputs|items|keys|labels|layers|lines|links|locks|matches|messages|minutes|mounts|names|pages|paths|patterns|permissions|ports|places|processes|questions|records|repositories|requests|rules|seconds|sessions|skills|sockets|tenants|tests|times|tokens|tools|users|variables|violations|words|worktrees)\b`)

// severalAnyway are the words around a count that is never one: a limit, or what is beyond one.
var severalAnyway = regexp.MustCompile(`at most|limit is|limit for|limit of|its limit|the maximum|%d of (?:its )?%d|(?:more|larger|longer|deeper) than|may (?:then )?have|too many|cut at|the first %d`)

// ofPrograms are packages whose counts only logs and tests show: what goes between the daemon and its agents.
var ofPrograms = map[string]string{
	"cmd/toolagent": "to the daemon", "internal/agent": "of the protocol", "internal/agent/inside": "of the protocol", "internal/agent/inside/exec": "to the daemon", "internal/store": "of the database",
	"internal/wire": "of the protocol", "internal/sandbox/sandboxtest": "of tests", "internal/testrig/difftest": "of tests",
}

// countless are such texts in which the number is never one.
var countless = map[string]string{
	"%d -> %d bytes":                         "git writes it so",
	"by %d edits in %s":                      "one edit has other words",
	"a path of %d bytes":                     "a path that is too long",
	"a name of %d bytes":                     "a name that is too long",
	"got %d sockets, want one":               "not one",
	"cycles this long are %d calls":          "there are several in a cycle",
	"the same %d calls":                      "one has other words",
	"%d places are not as they were written": "one has other words",
	"the rules name %d ports":                "more than are listened at",
	"may hold %d files (%d processes":        "limits that a session cannot work below",
	"it claims %d names, and may claim %d":   "more than it may",
	"%d processes and threads":               "a limit that a session cannot work below",
	"%d calls at once":                       "one has other words",
	"there are %d layers":                    "a constant",
	"%d directories of uid %d":               "a constant",
	"is given %d times":                      "more than once",
	"%s, %d times":                           "more than once",
	"index of %s covers %d bytes of %d":      "a damaged file, in the log",
}

// TestCounts: texts of tools and of toolctl count by plain.Count, which knows one of a thing.
func TestCounts(t *testing.T) {
	used := make(map[string]bool)
	inspect(t, func(pkg, at string, n ast.Node) {
		lit, ok := n.(*ast.BasicLit)
		if !ok || ofPrograms[pkg] != "" || lit.Kind != token.STRING || !counted.MatchString(lit.Value) || severalAnyway.MatchString(lit.Value) {
			return
		}
		for text := range countless {
			if strings.Contains(lit.Value, text) {
				used[text] = true
				return
			}
		}
		t.Errorf("%s: %s says \"1 files\" of one: use plain.Count", at, lit.Value)
	})
	for text := range countless {
		if !used[text] {
			t.Errorf("%q is in no text any more: take it out of countless", text)
		}
	}
}

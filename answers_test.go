package toold_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// answerMakers are the packages that make the API's error, and why these do.
var answerMakers = map[string]string{
	"internal/tool":   "what is wrong with an input, with every place of it",
	"internal/answer": "the one mapping of all other errors, for answers and for records of calls",
	"internal/server": "the API itself: what is wrong with a request, and what it does not tell",
}

// TestAnswers: inside there are errors with a kind and a cause (package fault), on which
// others can act. Whoever made the API's error instead would have to know how the API
// calls it, and those who get it could do nothing but pass it on.
func TestAnswers(t *testing.T) {
	made := make(map[string]int)
	where := make(map[string][]string)
	sources(t, func(file string, src []byte) {
		ours := strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "cmd/")
		if !ours || strings.HasSuffix(file, "_test.go") {
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && isAnswer(lit.Type) {
				made[path.Dir(file)]++
				where[path.Dir(file)] = append(where[path.Dir(file)], set.Position(lit.Pos()).String())
			}
			return true
		})
	})
	for pkg, n := range made {
		if answerMakers[pkg] == "" {
			t.Errorf("%s makes %d errors of the API: make them with package fault; they are at\n%s", pkg, n, strings.Join(where[pkg], "\n"))
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(answerMakers)) {
		if made[pkg] == 0 {
			t.Errorf("%s makes no error of the API any more: take it out of its table", pkg)
		}
	}
}

// isAnswer reports whether a type is client.Error.
func isAnswer(typ ast.Expr) bool {
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Error" {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "client"
}

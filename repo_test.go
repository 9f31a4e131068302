// Package toold_test holds the rules of the repository as a whole: which package
// may know which, what each binary links, and how things are written. They are
// tests so that a change which breaks one says so.
package toold_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/deps-*.txt")

const module = "github.com/toold/toold"

// importTable reads the import table of docs/architecture.md: what each package may
// import of ours. A trailing "/..." stands for the package and all below it. Package
// client, wire types on the standard library alone, is every package's but the agent's
// (see TestAgentIsSmall).
func importTable(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([^`]+)`")
	table := make(map[string][]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:api|client|cmd/|internal/)[^`]*)` \\|[^|]+\\|([^|]+)\\|$").FindAllStringSubmatch(string(text), -1) {
		allowed := []string{"client"}
		for _, m := range name.FindAllStringSubmatch(row[2], -1) {
			if m[1] != "api" && m[1] != "internal/..." {
				m[1] = "internal/" + m[1]
			}
			allowed = append(allowed, m[1])
		}
		table[row[1]] = allowed
	}
	return table
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	Name       string
	GoFiles    []string
	Imports    []string
	Standard   bool
}

func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Name,GoFiles,Imports,Standard"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestImportTable(t *testing.T) {
	mayImport, seen := importTable(t), make(map[string]bool)
	for _, p := range goList(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.ImportPath == module || strings.HasPrefix(name, "bench") || strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "examples/") {
			continue
		}
		allowed, ok := mayImport[name]
		if !ok {
			t.Errorf("package %s is not in the import table of docs/architecture.md: say there what it is and what it may import", name)
			continue
		}
		seen[name] = true
		for _, imp := range p.Imports {
			ours, isOurs := strings.CutPrefix(imp, module+"/")
			if isOurs && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, ours) }) {
				t.Errorf("%s imports %s, which the import table does not allow", name, ours)
			}
		}
		if name == "client" {
			for _, imp := range p.Imports {
				if strings.Contains(strings.Split(imp, "/")[0], ".") {
					t.Errorf("client imports %s: it stands on the standard library alone", imp)
				}
			}
		}
	}
	for name := range mayImport {
		if !seen[name] {
			t.Errorf("docs/architecture.md has a package %s, which is not there", name)
		}
	}
}

func covers(pattern, pkg string) bool {
	dir, all := strings.CutSuffix(pattern, "/...")
	return pkg == dir || all && strings.HasPrefix(pkg, dir+"/")
}

// TestDependencies compares what each binary links with a list that is checked
// in, so that a new dependency shows in review. -update rewrites the lists.
func TestDependencies(t *testing.T) {
	for _, binary := range []string{"toold", "toolctl", "toolagent"} {
		t.Run(binary, func(t *testing.T) {
			got := strings.Join(linked(t, binary), "\n") + "\n"
			golden := "testdata/deps-" + binary + ".txt"
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range difference(got, string(want)) {
				t.Error(d)
			}
			if t.Failed() {
				t.Log("if this is wanted: go test . -run Dependencies -update, and the reason in the commit")
			}
		})
	}
}

// linked lists the packages outside the standard library that a binary links,
// without our own.
func linked(t *testing.T, binary string) []string {
	t.Helper()
	var list []string
	for _, p := range goList(t, "-deps", "./cmd/"+binary) {
		if !p.Standard && !strings.HasPrefix(p.ImportPath, module) {
			list = append(list, p.ImportPath)
		}
	}
	slices.Sort(list)
	return list
}

func difference(got, want string) []string {
	g, w := strings.Fields(got), strings.Fields(want)
	var diff []string
	for _, p := range g {
		if !slices.Contains(w, p) {
			diff = append(diff, "links "+p+", which is new")
		}
	}
	for _, p := range w {
		if !slices.Contains(g, p) {
			diff = append(diff, "links "+p+" no more")
		}
	}
	return diff
}

// TestAgentIsSmall: an agent runs in every session.
func TestAgentIsSmall(t *testing.T) {
	for _, p := range goList(t, "-deps", "./cmd/toolagent") {
		for _, banned := range []string{
			"net/http", "crypto/tls", "database/sql", "html/template", "text/template", "go/ast",
			"github.com/prometheus", "github.com/docker", "github.com/spf13", "github.com/santhosh-tekuri", "mvdan.cc/sh",
			module + "/client", module + "/internal/session", module + "/internal/server",
		} {
			if p.ImportPath == banned || strings.HasPrefix(p.ImportPath, banned+"/") {
				t.Errorf("toolagent links %s", p.ImportPath)
			}
		}
	}
}

// TestEndsOfTheProtocol: each program links its own end of the control protocol alone.
func TestEndsOfTheProtocol(t *testing.T) {
	const daemons, agents = module + "/internal/agent", module + "/internal/agent/inside"
	for program, banned := range map[string]func(pkg string) bool{
		"toold":     func(pkg string) bool { return covers(agents+"/...", pkg) },
		"toolctl":   func(pkg string) bool { return covers(daemons+"/...", pkg) },
		"toolagent": func(pkg string) bool { return pkg == daemons },
	} {
		for _, p := range goList(t, "-deps", "./cmd/"+program) {
			if banned(p.ImportPath) {
				t.Errorf("%s links %s", program, p.ImportPath)
			}
		}
	}
}

// sources walks the Go files of the repository.
func sources(t *testing.T, visit func(path string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was somebody's for a moment
		}
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			visit(path, src)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPackageComments: every package says in its first sentence what it is for.
func TestPackageComments(t *testing.T) {
	documented := map[string]string{} // directory → first sentence
	names := map[string]string{}
	sources(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		names[dir] = f.Name.Name
		if f.Doc != nil {
			if documented[dir] != "" {
				t.Errorf("%s: the package has its comment in another file already", path)
			}
			documented[dir] = f.Doc.Text()
		}
	})
	for dir, name := range names {
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + filepath.Base(dir) + " "
		}
		if !strings.HasPrefix(documented[dir], want) {
			t.Errorf("%s: the package comment does not begin with %q", dir, want)
		}
	}
}

// maxLines is when a file should be split. It is guidance with some room: what
// belongs together may stay together.
const maxLines = 600

func TestFilesAreSmall(t *testing.T) {
	sources(t, func(path string, src []byte) {
		if n := bytes.Count(src, []byte("\n")); n > maxLines && !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s has %d lines, more than %d: split it by noun", path, n, maxLines)
		}
	})
}

func TestNames(t *testing.T) {
	banned := regexp.MustCompile(`^(util|utils|common|helpers?|misc|types|base)$`)
	sources(t, func(path string, src []byte) {
		for _, part := range append(strings.Split(filepath.Dir(path), "/"), strings.TrimSuffix(filepath.Base(path), ".go")) {
			if banned.MatchString(part) {
				t.Errorf("%s: a file or package is named for what is in it, not %q", path, part)
			}
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil && !initAllowed[path] && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s: init functions hide what runs; do it where it is needed", path)
			}
		}
	})
}

// initAllowed: the agent's main goroutine must be locked to the main thread
// before any other exists.
var initAllowed = map[string]bool{"cmd/toolagent/main.go": true}

// TestWords: what is written here speaks of the project, and is finished.
func TestWords(t *testing.T) {
	unfinished := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)[:(]`)
	tracker := regexp.MustCompile(`(?i)\b(issue|ticket) #?\d+|\bas an AI\b|language model`)
	check := func(path string, text []byte) {
		for i, line := range strings.Split(string(text), "\n") {
			if unfinished.MatchString(line) {
				t.Errorf("%s:%d: unfinished work has no place in the tree: %s", path, i+1, strings.TrimSpace(line))
			}
			if tracker.MatchString(line) {
				t.Errorf("%s:%d: say it here, not by pointing elsewhere: %s", path, i+1, strings.TrimSpace(line))
			}
		}
	}
	for _, path := range tracked(t) {
		if strings.HasPrefix(path, "bench/results/") || strings.HasSuffix(path, ".sum") || strings.Contains(path, "testdata/") || path == "repo_test.go" {
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		check(path, text)
	}
}

// tracked lists the files of the repository; in an unpacked archive, all files.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z").Output()
	if err == nil && len(out) > 0 {
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	var list []string
	sources(t, func(path string, _ []byte) { list = append(list, path) })
	return list
}

// TestLinks: what the documents point at exists.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, path := range tracked(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(path), m[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	}
}

// TestSecurityNamesTests: each test that the security documents name, or the table of what routes show, is there.
func TestSecurityNamesTests(t *testing.T) {
	var all bytes.Buffer
	sources(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			all.Write(src)
		}
	})
	for _, doc := range []string{"SECURITY.md", "docs/security.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
			if !bytes.Contains(all.Bytes(), []byte("func "+m[1]+"(")) {
				t.Errorf("%s names %s, which no package has", doc, m[1])
			}
		}
	}
	// So do the guards of routes.
	const table = "internal/server/content_test.go"
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	guards := regexp.MustCompile(`[:,] (Test[A-Za-z0-9]+)`).FindAllStringSubmatch(string(text), -1)
	for _, m := range guards {
		if !bytes.Contains(all.Bytes(), []byte("func "+m[1]+"(")) {
			t.Errorf("%s names %s, which no package has", table, m[1])
		}
	}
	if len(guards) < 8 {
		t.Errorf("%s names %d tests", table, len(guards))
	}
}

// commandBlock is a fenced block of a document with the line above it.
var commandBlock = regexp.MustCompile("(?m)^(.*)\n```([a-z]*)\n(?s:.*?)^```$")

// TestCommandBlocks: each block of commands and code in a document is run by a test,
// which the comment above it names, or the comment says why not.
//
// Commands are "sh"; "text", "ini" and "json" are what is looked at, not typed.
func TestCommandBlocks(t *testing.T) {
	run := regexp.MustCompile(`^<!-- ([^ ]+): ([a-zA-Z0-9. -]+) -->$`)
	not := regexp.MustCompile(`^<!-- not run: .{10,} -->$`)
	for _, doc := range tracked(t) {
		if filepath.Ext(doc) != ".md" || strings.HasPrefix(doc, "internal/tool/") {
			continue
		}
		text, err := os.ReadFile(doc)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range commandBlock.FindAllStringSubmatch(string(text), -1) {
			above, language := m[1], m[2]
			_, first, _ := strings.Cut(m[0], "```"+language+"\n")
			first, _, _ = strings.Cut(first, "\n")
			if language == "" {
				t.Errorf("%s: the block that begins with %q does not say what it is: sh, toml, text …", doc, first)
			}
			if language == "text" || language == "ini" || language == "json" || not.MatchString(above) {
				continue
			}
			named := run.FindStringSubmatch(above)
			if named == nil {
				t.Errorf("%s: the line above the block that begins with %q does not name the test that runs it, nor say why none does", doc, first)
				continue
			}
			test, err := os.ReadFile(named[1])
			switch {
			case err != nil:
				t.Errorf("%s: %v", doc, err)
			case strings.HasPrefix(named[1], "test/cli/") &&
				!strings.Contains(string(test), "block "+doc+" "+named[2]+"\n") && !strings.Contains(string(test), fmt.Sprintf("%q, %q", doc, named[2])):
				t.Errorf("%s does not run the block %q of %s", named[1], named[2], doc)
			}
		}
	}
}

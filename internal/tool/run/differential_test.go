package run

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/toold/toold/internal/tool/run/readrule"
)

// bothEngines runs a call with each engine and compares all of their answers.
func bothEngines(t *testing.T, env *Env, tool Tool, input map[string]any) *Result {
	t.Helper()
	raw, err := json.Marshal(input)
	must(t, err)
	own := *env
	own.Exec = noRipgrep
	want, wantErr := tool.Run(t.Context(), env, raw, nil)
	got, gotErr := tool.Run(t.Context(), &own, raw, nil)
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("%s %s: got error %v, ripgrep %v", tool.Name(), raw, gotErr, wantErr)
	}
	if wantErr != nil {
		return nil
	}
	if want.IsError || got.IsError {
		if want.IsError != got.IsError {
			t.Errorf("%s %s: got\n%s\nripgrep\n%s", tool.Name(), raw, got.Output, want.Output)
		}
		return got
	}
	gotMeta, _ := json.Marshal(got.Metadata)
	wantMeta, _ := json.Marshal(want.Metadata)
	more := got.Metadata["more"] == true && tool.Name() == "grep"
	if string(gotMeta) != string(wantMeta) && !more || got.Output != want.Output && !more ||
		more && got.Metadata["more"] != want.Metadata["more"] {
		t.Errorf("%s %s: got %s, ripgrep %s\n%s", tool.Name(), raw, gotMeta, wantMeta, lineDiff(want.Output, got.Output))
	}
	return got
}

// lineDiff are the lines that one of two answers has and the other has not.
func lineDiff(want, got string) string {
	var b strings.Builder
	for mark, pair := range map[string][2]string{"only ripgrep: ": {want, got}, "only own: ": {got, want}} {
		other := "\n" + pair[1]
		for line := range strings.Lines(pair[0]) {
			if !strings.Contains(other, "\n"+line) {
				fmt.Fprintf(&b, "%s%.200s\n", mark, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	return b.String()
}

// skipShort is for tests that start ripgrep thousands of times.
func skipShort(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: without -short")
	}
}

// Patterns of every kind mean the same to both engines, or are refused by both. Left
// out are those that ripgrep 13 and 14 do not agree about: [a&&&b], whose class is
// empty, and (?x) with a comment, which to 14 goes on past the end of the pattern.
func TestEnginesAgreeOnPatterns(t *testing.T) {
	needRipgrep(t)
	skipShort(t)
	env := searchEnv(t)
	tree(t, env.Worktree, map[string]string{
		"ascii": "foo bar\nFOO_BAR\n  indented\n\nfoo.bar(x)\na{1}\n[x]\nend\\\ntab\there\n12 34\nx-y\n&& -- ~~\nK s\n#hash\nfoo\r\nbar \n/path/to\n\"q\" 'r'\n",
		"utf8":  "äöü ÄÖÜ\nstraße\nK (kelvin)\nſ long\n٣ digit\n日本語\nnaïve café\nx\u00a0y\u2028z\nⒶ circled\n\u200d joiner\nпривет Мир\nσ ς Σ\nİ ı I i\n",
		"bad":   "a\xffb\n\xff\nfoo\xfe\n\xc3\nä\xc3(\nword\xffword\n",
		"bom":   "\ufefffoo\nbar\n",
		"none":  "foo",
		"empty": "",
		"break": "foo\nbar\n\nfoo\n\nbar\nbaz foo\nbar\n",
	})
	for _, p := range []string{
		"foo", "^foo", "foo$", "^foo$", "^$", "", ".", ".*", "^.*$", "^.$", "^..$", `\bfoo\b`, `\Bar`, `foo\B`, `\boo`,
		`\d`, `\d+ \d+`, `\D`, `\w+`, `^\w+$`, `\W`, `\s`, `^\s`, `\S+$`, `[\d]`, `[^\d]`, `[\w.]+\(`, `[^\w]`, `[\W]`, `^\W+$`, `[^\W]`,
		`\p{L}`, `\pL`, `\PL`, `\p{Greek}`, `\p{Lu}`, `\p{Uppercase_Letter}`, `\p{script=Cyrillic}`, `[\p{Lu}\d]`, `\p{nope}`, `\p{greek}`,
		`[a-z&&[^aeiou]]`, `[a-z--[aeiou]]`, `[a-f~~c-h]`, `[a-z&&aeiou]`, `[[:alpha:]]`, `[[:^alpha:]]`, `[[:nope:]]`, `[^[a-z]]`, `[a[bc]d]`, `[]a]`, `[^]a]`, `[-a]`, `[a-]`, `[--]`, `[a-c-e]`, `[\]]`, `[\n]`, `[^\n]`, `[\t]`, `[&]`, `[~-]`, `[a\-z]`, `[z-a]`, `[a`, `[`, `[]`, `[^]`,
		`a{1}`, `a\{1\}`, `o{2}`, `o{2,}`, `o{1,2}`, `o{2,1}`, `a{`, `a{,2}`, `{`, `}`, `]`, `a{x}`, `o{ 2 }`, `o{2}{1}`, `a**`, `o+?`, `o+*?`, `*`, `+a`, `a|*`, `(*)`, `|`, `a||b`, `()`, `(|a)`, `foo|bar`, `(?:foo|bar)\b`, `foo(?:|x)`, `^*`, `$+`, `\b*`,
		`(`, `)`, `(a`, `a)`, `(?P<n>foo)`, `(?P<n`, `(?P=n)`, `(?i)FOO`, `(?i:F)oo`, `F(?i)OO`, `(?-i)foo`, `(?s).`, `(?m)^foo`, `(?-m)^foo`, `(?U)o+`, `(?x) f o o`, `(?x)[f o]+`, `(?z)`, `(?i`, `(?-i-s)`, `(?u)x`, `(?=a)`, `(?!a)`, `(?<=a)`, `(?>a)`, `(?i)(?-i)FOO`, `(?:(?i)f)OO`,
		`\1`, `\Z`, `\Q`, `\C`, `\h`, `\x66oo`, `\x{66}oo`, `\u0066oo`, `\u{66}`, `\U00000066`, `\x{110000}`, `\x6`, `\xzz`, `\x{}`, `\a`, `\f`, `\v`, `\t`, `\r`, `foo\r$`, `\n`, `a\nb`, `\`, `a\`, `\.`, `\(x\)`, `\[x\]`, `\-`, `\&\&`, `\~`, `\#`, `\Afoo`, `bar\z`, `\pZ`,
		"ä", "Ä", "[ä-ü]", "日本", ".語", "^...$", `caf\w$`, `na.ve`, `é\b`, `\bé`, `ß`, "K", "k", "s", "ſ", "σ", "i", "İ", `a.b`, `a[^x]b`, `\xff`, "ord\ufffd?w",
	} {
		for _, in := range []map[string]any{
			{},
			{"ignore_case": true},
			{"multiline": true},
			{"literal": true},
			{"output_mode": "count"},
			{"multiline": true, "output_mode": "count"},
			{"multiline": true, "ignore_case": true, "output_mode": "files"},
			{"context": 1},
			{"multiline": true, "context": 1},
		} {
			in["pattern"] = p
			in["limit"] = 1000
			bothEngines(t, env, Grep{}, in)
			if t.Failed() {
				break
			}
		}
	}
}

// Files of every kind are read in the same way.
func TestEnginesAgreeOnFiles(t *testing.T) {
	needRipgrep(t)
	skipShort(t)
	env := searchEnv(t)
	wide := func(s string, big bool) string {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune("\ufeff" + s)) {
			if big {
				b.WriteByte(byte(u >> 8))
			}
			b.WriteByte(byte(u))
			if !big {
				b.WriteByte(byte(u >> 8))
			}
		}
		return b.String()
	}
	// The long lines are searched by themselves: ripgrep reads more at a time after
	// it has met one, so that what it finds in a binary file then depends on which
	// file each of its threads came to before.
	filler := strings.Repeat("some line of text\n", 10000)
	files := map[string]string{
		"le": wide("foo\nbär\n𝄞 foo\n", false), "be": wide("foo\nbär\n", true), "odd": wide("foo\n", false) + "x",
		"lone": "\xff\xfe\x00\xd8f\x00\n\x00", "lonelow": "\xff\xfe\x00\xdcf\x00o\x00o\x00\n\x00", "justbom": "\xff\xfe", "bom8": "\xef\xbb\xbf", "part": "\xef\xbb",
		"wide0": wide("foo\n\x00\nfoo\n", false), "longwide": wide(strings.Repeat("foo bar\n", 9000), false), "longwide0": wide(strings.Repeat("foo bar\n", 9000)+"\x00", false),
		"nul": "\x00", "nul1": "foo\n\x00", "nul2": "f\n\x00foo\n", "nul3": "foo\x00foo\n", "nul4": "fo\nfoo\x00\n", "first": "\x00foo\n",
		"late": "foo\n" + filler + "\x00foo\n", "later": filler + "foo\n" + filler + "foo\x00\nfoo\n" + filler, ".git/edge": strings.Repeat("x", 65532) + "foo\n\x00",
		".git/edge2": strings.Repeat("x", 65535) + "\nfoo\n\x00", ".git/edge3": "foo\n" + strings.Repeat("x", 65531) + "\n\x00", "cr": "foo\rfoo\r\n", "crs": "foo\r\r\n",
		".git/long": strings.Repeat("y", 200000) + "foo\nfoo\n", ".git/long0": "foo\n" + strings.Repeat("y", 200000) + "\x00foo\nfoo\n", "noend": filler + "foo",
		"ctx": filler + "foo\n" + filler + "foo\nfoo\n" + filler, "utf32": "\xff\xfe\x00\x00f\x00\x00\x00",
		"sub/latin": "caf\xe9 foo\n",
	}
	tree(t, env.Worktree, files)
	for _, mode := range []string{"content", "files", "count"} {
		for _, around := range []int{0, 1, 50} {
			if around > 0 && mode != grepContent {
				continue
			}
			for _, multiline := range []bool{false, true} {
				for _, pattern := range []string{"foo", "o", `^foo$`, `foo\s`, `\bfoo`, "text\nfoo", "."} {
					in := map[string]any{"pattern": pattern, "output_mode": mode, "context": around, "multiline": multiline, "limit": 1000}
					if pattern == "text\nfoo" && !multiline || pattern == "." && mode == "content" {
						continue
					}
					bothEngines(t, env, Grep{}, in)
					for name := range files {
						in["path"] = name
						bothEngines(t, env, Grep{}, in)
					}
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

// chooser picks parts of random tests.
type chooser struct{ *rand.Rand }

func newChooser(seed uint64) chooser { return chooser{rand.New(rand.NewPCG(seed, 1))} }

func (c chooser) of(parts ...string) string { return parts[c.IntN(len(parts))] }

// some joins up to n parts.
func (c chooser) some(n int, parts ...string) string {
	var b strings.Builder
	for range c.IntN(n) + 1 {
		b.WriteString(c.of(parts...))
	}
	return b.String()
}

func (c chooser) glob() string {
	g := c.some(5, "a", "b", "c", "d", "*", "?", "**", "/", "/", "[ab]", "[!a]", "[^b-d]", "{a,b}", "{ab}", "{c,d}", "*.x", ".x", "\\", "\\*", "]", "-", ",", " ", "a", "b", "}")
	switch c.IntN(8) {
	case 0:
		g = "!" + g
	case 1:
		g = "/" + g
	case 2:
		g += "/"
	case 3:
		g += c.of(" ", "\\ ", "\t", "\r", "  ")
	case 4:
		g = c.of("#", "\\#", "\\!", "[", "{a", "**/", "/**/") + g
	}
	// A slash at the end is none of the pattern's. Where it was escaped, ripgrep 13
	// (as git) is left with an escape of nothing, and 14 takes that off too.
	for strings.Contains(g, `\/`) {
		g = strings.ReplaceAll(g, `\/`, "/")
	}
	return g
}

// randomTree makes files and ignore files below dir. Repositories are in one only: by
// themselves they keep out what is said above them for ripgrep 13 and not for 14.
func randomTree(t *testing.T, c chooser, dir string) {
	t.Helper()
	repository := c.IntN(2) == 0
	if repository {
		must(t, os.MkdirAll(filepath.Join(dir, ".git/info"), 0o755))
	}
	names := []string{"a", "b", "c", "d", "a.x", "b.x", "ab", "abc", ".x", "B", "a b", "a,b", "a]", "-"}
	var fill func(dir string, depth int)
	fill = func(dir string, depth int) {
		for range c.IntN(6) + 1 {
			path := filepath.Join(dir, c.of(names...))
			if depth < 4 && c.IntN(2) == 0 {
				if os.MkdirAll(path, 0o755) == nil {
					fill(path, depth+1)
				}
				continue
			}
			_ = os.WriteFile(path, []byte("x\n"), 0o644)
		}
		for _, name := range []string{".gitignore", ".ignore", ".rgignore", ".git/info/exclude"} {
			if c.IntN(4) > 0 {
				continue
			}
			if strings.HasPrefix(name, ".git/") && repository && c.IntN(2) == 0 {
				must(t, os.MkdirAll(filepath.Join(dir, ".git/info"), 0o755))
			}
			var lines []string
			for range c.IntN(4) + 1 {
				lines = append(lines, c.glob())
			}
			_ = os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")), 0o644)
		}
	}
	fill(dir, 0)
}

// dirsBelow are dir and all directories below it.
func dirsBelow(t *testing.T, dir string) []string {
	t.Helper()
	var dirs []string
	must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	}))
	return dirs
}

// unjudged is hostExec as if no search had failed. ripgrep says so too where a line
// in an ignore file above the directory is no glob, which the own engine passes over.
func unjudged(ctx context.Context, c Command) (*Exit, error) {
	exit, err := hostExec(ctx, c)
	if err == nil && exit.Reason == ReasonExit && exit.Code == 2 {
		exit.Code = 0
	}
	return exit, err
}

// Random trees with random ignore files hold the same files for both engines.
func TestEnginesAgreeOnTrees(t *testing.T) {
	needRipgrep(t)
	env := searchEnv(t)
	env.Exec = unjudged
	top := env.Worktree
	// ripgrep 14 judges some names wrongly by the rules of directories above the one
	// that is searched; 13 does not.
	version, err := exec.Command("rg", "--version").Output()
	must(t, err)
	wrongAbove := strings.HasPrefix(string(version), "ripgrep 14.")
	seed := uint64(time.Now().UnixNano())
	n := 60
	if testing.Short() {
		n = 30
	}
	for i := range n {
		c := newChooser(seed + uint64(i))
		env.Worktree = filepath.Join(top, fmt.Sprint(i))
		must(t, os.Mkdir(env.Worktree, 0o755))
		randomTree(t, c, env.Worktree)
		path := "."
		if c.IntN(2) == 0 && !wrongAbove {
			path = c.of(dirsBelow(t, env.Worktree)...)
		}
		env.Settings = nil
		if c.IntN(2) == 0 { // what rules leave out is counted alike
			env.Settings, err = json.Marshal(map[string]any{"read_rules": readrule.Rules{Worktree: env.Worktree, List: []readrule.Rule{
				{Patterns: []string{"*"}, Action: "allow"},
				{Patterns: []string{c.of("a*", "*/b", "*.x", "b/*", "*c*")}, Action: c.of("ask", "deny"), Source: "r:1"},
				{Patterns: []string{c.of("a", "*/a/*", "b.x", "*/c")}, Action: c.of("ask", "deny", "allow"), Source: "r:2"},
			}}})
			must(t, err)
		}
		bothEngines(t, env, Glob{}, map[string]any{"pattern": c.of("*", "**/*.x", "a*", "**/a/**", "{a,b}*", "*/*", "!b", "[a-b]"), "path": path})
		bothEngines(t, env, Grep{}, map[string]any{"pattern": "", "output_mode": "files", "limit": 1000, "path": path})
		bothEngines(t, env, Grep{}, map[string]any{"pattern": ".", "limit": 1000, "include": c.of("*", "a*", "*.x", "!a", "{a,b}/**", "**/c/*"), "path": path})
		if t.Failed() {
			t.Logf("seed %d, path %s", seed+uint64(i), path)
			for _, name := range []string{".gitignore", ".ignore", ".rgignore", "exclude"} {
				_ = filepath.WalkDir(env.Worktree, func(path string, _ os.DirEntry, _ error) error {
					if filepath.Base(path) == name {
						text, _ := os.ReadFile(path)
						t.Logf("%s: %q", path, text)
					}
					return nil
				})
			}
			return
		}
	}
}

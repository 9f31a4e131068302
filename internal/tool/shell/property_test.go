package shell

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// check reports what a shell, bash or dash, does with text and the scan does not
// say, or rules on what the scan says do not deny. It reports whether the scan
// claimed anything.
func check(t testing.TB, shell, text string) (judged bool) {
	t.Helper()
	return checkIn(t, shell, text, usual)
}

// checkIn is check in other surroundings.
func checkIn(t testing.TB, shell, text string, around surroundings) (judged bool) {
	t.Helper()
	o := around.options(shell)
	r := Scan(text, o)
	if r.Opaque {
		return false // whatever it does, nothing was claimed
	}
	x := executeIn(t, shell, text, around)
	for _, argv := range x.programs {
		if program, is := strings.CutPrefix(argv[0], "@"); is {
			argv[0] = program
			if !slices.ContainsFunc(r.Commands, func(c Command) bool {
				return slices.ContainsFunc(append(strings.Split(c.Also, "\x00"), c.Text), func(reading string) bool { return explainsSome(reading, argv) })
			}) {
				t.Errorf("%s -c %q: it was %q, which no rule would be about: %+v", shell, text, argv, r.Commands)
			}
		} else if _, is := oracleScripts[argv[0]]; is {
			if !runsFile(r, around, argv[0]) {
				t.Errorf("%s -c %q: it ran the file %q, which is not among those of %+v", shell, text, argv[0], r.Commands)
			}
		} else if !slices.ContainsFunc(r.Commands, func(c Command) bool { return explains(c.Text, argv) || interprets(c.Text, argv[0]) }) {
			t.Errorf("%s -c %q: it ran %q, which is not among %v", shell, text, argv, r.Commands)
		}
	}
	for _, file := range x.files {
		if !Denied(t, o, around.home, text, file) {
			t.Errorf("%s -c %q: it wrote %q, and rules that deny an edit of that do not deny it: %+v", shell, text, file, r.Writes)
		}
	}
	for _, file := range x.opened {
		if !runsFile(r, around, file) && !speaksOf(r, around, file) {
			t.Errorf("%s -c %q: it opened %q, of which nothing is said: %+v", shell, text, file, r)
		}
	}
	for _, name := range x.trace {
		if !slices.ContainsFunc(r.Commands, func(c Command) bool { return explains(c.Text, []string{name}) || begins(c.Text, name) }) {
			t.Errorf("%s -c %q: it ran %q, which is not among %v", shell, text, name, r.Commands)
		}
	}
	return true
}

// runsFile reports whether a file is among those that the commands of r may run.
func runsFile(r Result, around surroundings, file string) bool {
	return slices.ContainsFunc(r.Commands, func(c Command) bool {
		return c.Program != nil && slices.ContainsFunc(c.Program.Files, func(f File) bool {
			return slices.ContainsFunc(f.Names, func(name string) bool {
				name = leadsTo(around.start(), name, "")
				matches, err := path.Match(name, file) // of one with wildcards
				return name == file || f.pattern && err == nil && matches
			})
		})
	})
}

// speaksOf reports whether a file is among the paths of r, or one of them may be any.
func speaksOf(r Result, around surroundings, file string) bool {
	is := func(name string) bool { return name == "" || leadsTo(around.start(), name, "") == file }
	return slices.ContainsFunc(slices.Concat(r.Paths, r.Writes), func(p Path) bool { return is(p.Name) }) ||
		slices.ContainsFunc(r.Links, func(l Link) bool { return is(l.Name) })
}

// begins reports whether text is a command called name, whatever its arguments.
func begins(text, name string) bool {
	first, _, _ := strings.Cut(text, " ")
	return programName(first) == programName(name) || strings.HasPrefix(text+" ", programName(name)+" ") // of two words, as git's own
}

// programName is the name of a program that is given by its path, a stub's too.
func programName(name string) string { return strings.TrimPrefix(systemName(name), "/stub/") }

// interprets reports whether text is a shell that may run the stub called name
// as a script: stubs are scripts, and a shell looks for its script in PATH too.
func interprets(text, name string) bool {
	shell, rest, _ := strings.Cut(text, " ")
	return shells[shell] && strings.Contains(rest, name)
}

// explains reports whether the command text may have become argv: the words that
// are fixed are the same up to the first one that is not.
func explains(text string, argv []string) bool { return explainsWords(text, argv, false) }

// explainsSome is explains for words that argv begins with.
func explainsSome(text string, argv []string) bool { return explainsWords(text, argv, true) }

func explainsWords(text string, argv []string, some bool) bool {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil || len(file.Stmts) != 1 {
		return begins(text, argv[0])
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return begins(text, argv[0])
	}
	c := &scanner{findings: findings{out: &Result{}}, src: text}
	for i, n := range call.Args {
		w := c.word(n)
		switch {
		case !w.fixed && (w.many || i == 0):
			return i > 0
		case i >= len(argv):
			return some
		case strings.Contains(w.value, "{}"), strings.Contains(w.value, "=~"): // what xargs and find replace, and where bash finds a home
		case w.fixed && !w.tilde && w.value != argv[i] && (i > 0 || programName(w.value) != programName(argv[0])):
			return false
		}
	}
	// xargs and find -exec add arguments.
	return true
}

// allowed judges r as a rule list would that allows the patterns and denies all
// else.
func allowed(r Result, text string, patterns []string) bool {
	match := func(s string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			prefix, wild := strings.CutSuffix(p, " *")
			return s == prefix || wild && strings.HasPrefix(s, prefix+" ")
		})
	}
	if r.Opaque || len(r.Writes) > 0 {
		return false
	}
	for _, c := range r.Commands {
		if !match(c.Text) {
			return false
		}
	}
	return true
}

var harmlessPatterns = []string{"echo *", "ls *", "git status", "cat *", "find *"}

func lines(t testing.TB, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "##") || line == "" {
			continue
		}
		if strings.HasPrefix(line, `$"`) { // a Go string, for what a line cannot hold
			s, err := strconv.Unquote(line[1:])
			if err != nil {
				t.Fatalf("%s: %s: %v", file, line, err)
			}
			line = s
		}
		list = append(list, line)
	}
	return list
}

// bypasses are commands that run or write something although they look like, or
// begin as, something harmless.
func bypasses(t testing.TB) []string {
	return append(lines(t, "testdata/bash_bypass.txt"), lines(t, "testdata/bypass.txt")...)
}

// dashBypasses are those of dash.
func dashBypasses(t testing.TB) []string { return lines(t, "testdata/dash.txt") }

func TestNoBypass(t *testing.T) {
	for _, text := range bypasses(t) {
		if r := Scan(text, Options{Home: "/home/tool"}); allowed(r, text, harmlessPatterns) {
			t.Errorf("%q is allowed by rules for harmless commands: %+v", text, r)
		}
	}
	for _, text := range append(bypasses(t), dashBypasses(t)...) {
		r := Scan(text, Options{Home: "/home/tool", Shell: []string{"/bin/dash"}})
		if allowed(r, text, harmlessPatterns) {
			t.Errorf("%q is allowed in dash by rules for harmless commands: %+v", text, r)
		}
	}
}

func TestBypassesInShells(t *testing.T) {
	needOracle(t)
	for _, text := range append(bypasses(t), lines(t, "testdata/harmless.txt")...) {
		check(t, "bash", text)
		check(t, "dash", text)
	}
	for _, text := range dashBypasses(t) {
		check(t, "dash", text)
	}
}

// TestOracleSees proves that the oracle would notice.
func TestOracleSees(t *testing.T) {
	needOracle(t)
	for _, tc := range []struct {
		text  string
		names []string
	}{
		{"touch FLAG", []string{"touch"}},
		{"unknown-program x", []string{"unknown-program"}},
		{"echo $(git status)", []string{"git"}},
		{"env nice touch a", []string{"touch"}},
		{"sh -c 'touch a; git b'", []string{"touch", "git"}},
		{"touch a & git b", []string{"touch", "git"}},
	} {
		x := execute(t, "bash", tc.text)
		var names []string
		for _, argv := range x.programs {
			if !strings.HasPrefix(argv[0], "@") {
				names = append(names, argv[0])
			}
		}
		slices.Sort(names)
		slices.Sort(tc.names)
		if !slices.Equal(names, tc.names) {
			t.Errorf("%q: programs %q, want %q", tc.text, names, tc.names)
		}
	}
	for _, shell := range []string{"bash", "dash"} {
		if x := execute(t, shell, "echo a; : b"); !slices.Equal(x.trace, []string{"echo", ":"}) {
			t.Errorf("%s: trace %q", shell, x.trace)
		}
		if x := execute(t, shell, "cd d; >FLAG; cat <../in"); !slices.Equal(x.files, []string{"/w/d/FLAG"}) {
			t.Errorf("%s: files %q", shell, x.files)
		}
		if x := execute(t, shell, "echo x 1<in >/dev/stdout"); !slices.Equal(x.files, []string{"/w/in"}) {
			t.Errorf("%s: files %q", shell, x.files)
		}
	}
	for text, want := range map[string]string{
		"git -C d -c a=b --bare push x": "push", "git --shallow-file x push": "push", "git --git-dir=x --new push": "", "git --version push": "", "docker -H x --tls -ly run a": "run", "kubectl -n get delete x": "delete", "npm --registry x publish": "publish",
		"/opt/git/libexec/git-core/git-push": "push", "/usr/lib/git-core/git-stash pop": "stash",
	} {
		got := ""
		for _, argv := range execute(t, "bash", text).programs {
			if strings.HasPrefix(argv[0], "@") {
				got += argv[1]
			}
		}
		if got != want {
			t.Errorf("%q was %q, want %q", text, got, want)
		}
	}
	// Start-up files show, of a login shell and of one behind a connection.
	for text, want := range map[string]string{
		"bash -lc :": ".bash_profile", "exec -l bash -c :": ".bash_profile", "dash -lc :": ".profile", "dash -ic :": ".shrc", "exec bash -c : </dev/tcp/127.0.0.1/7": ".bashrc", "env -i HOME=$HOME bash -c :": ".bashrc", "env bash -c :": "", "exec </dev/tcp/127.0.0.1/7; bash -c :": ".bashrc", "exec </dev/tcp/127.0.0.1/7; sh -c :": "", "sh -c : </dev/tcp/127.0.0.1/7": "",
		"bash -lc exit": ".bash_profile .bash_logout",
	} {
		for _, home := range []string{"/w", "/w/d"} {
			x := executeIn(t, "bash", text, surroundings{home: home, socket: !strings.Contains(text, "tcp")})
			var files []string
			for name := range strings.FieldsSeq(want) {
				files = append(files, startUpFile(name))
			}
			slices.Sort(files)
			slices.Sort(x.files)
			if !slices.Equal(x.files, files) {
				t.Errorf("%q: it made %q, want %q", text, x.files, files)
			}
		}
	}
	// A program sees its name, and a file is seen that is only opened.
	for text, want := range map[string]string{"exec -a x git push": "@x", "exec -l touch a": "@-touch", "exec -a git git push": "", "exec -a /y/git git": "", "exec git push": "", "(exec -a git-push /argv/git x)": "@git-push"} {
		got := ""
		for _, argv := range executeIn(t, "bash", text, surroundings{home: "/w", argv: true}).programs {
			if strings.HasPrefix(argv[0], "@") && argv[0] != "@git" {
				got += argv[0]
			}
		}
		if got != want {
			t.Errorf("%q: a program was called %q, want %q", text, got, want)
		}
	}
	for _, shell := range []string{"bash", "dash"} {
		if x := executeIn(t, shell, "true <e/s; true >>../in; cat ~/d/s; cd ..; >f", surroundings{home: "/w", workdir: "d"}); !slices.Equal(x.opened, []string{"/w/d/e/s", "/w/in"}) || !slices.Equal(x.files, []string{"/w/f"}) {
			t.Errorf("%s: it opened %q and wrote %q", shell, x.opened, x.files)
		}
		if x := executeIn(t, shell, ">f; cd ..; >g", surroundings{home: "/w", workdir: "link"}); !slices.Equal(x.files, []string{"/w/d/e/f", "/w/d/g"}) {
			t.Errorf("%s: it wrote %q", shell, x.files)
		}
	}
	if x := executeIn(t, "bash", "cd inner; echo a >f; cd -; echo b >g; echo c >~/h", surroundings{home: "/w/d/e", oldpwd: "/w", cdpath: "/w/d"}); !slices.Equal(x.files, []string{"/w/d/e/h", "/w/d/inner/f", "/w/g"}) {
		t.Errorf("it wrote %q", x.files)
	}
	if x := executeIn(t, "bash", "cd ..; echo a >f", surroundings{home: "/w", pwd: oracleBack}); !slices.Equal(x.files, []string{"/w/d/f"}) {
		t.Errorf("it wrote %q", x.files)
	}
	if x := execute(t, "dash", `$'\'; touch FLAG #'`); len(x.programs) != 1 {
		t.Errorf("dash ran %q", x.programs)
	}
	if x := execute(t, "bash", "echo $$ >FLAG; while :; do :; done"); !x.timeout && x.files == nil {
		t.Error("a loop was not ended")
	}
}

// fragments are what FuzzOracle makes texts of.
var fragments = []string{
	" ", " ", " ", "\n", ";", "&", "|", "&&", "||", "(", ")", "$(", ")", "`", "`", "'", "'", `"`, `"`, `\`, "\\\n", "#", " #", "{ ", "; }", "{", "}", ",", "..",
	"$", "${", "${x:-", "${x#", "${x/", "${#", "}", "$'", `$"`, "$((", "))", "((", "$[", "]", "[[ ", " ]]", "[ ", " ]", "=", "==", "!", "! ", "~", "*", "?", "@(", "<", ">", ">>", "<<", "<<-", "<<<", "<(", ">(", "2>", ">&", "&>",
	"<<A\n", "\nA\n", "\nA", "<<'A'\n", "A", "\t", "\r", "é", "\u00a0", "x", "y=1", "x=", " x ", "a", "b", "1", "2", "-", "-c ", "-a ", "--", "%", "/", ".", ":",
	"touch FLAG", "touch ", "git ", "git status", "echo ", "echo a", "cat ", "ls ", "cat <<A\n", "FLAG", "if ", "; then ", "; fi", "else ", "for x in a b; do ", "; done", "while ", "do ", "case a in a) ", ";; esac", ";;", "esac", "in ",
	"time ", "coproc ", "function f ", "f() ", "select x in a; do ", "env ", "nice ", "xargs ", "command ", "builtin ", "exec ", "sh -c ", "sh +c ", "bash -c ", "eval ", "find . ", "-exec ", "test ", "printf ", "export ", "declare ", "local ", "read ", "let ", "set ", "cd ", "true", "false", "y", "\\$", "\\`", `\"`, "\\'", "|&", ";&", "[", "a[", "]=",
	")#", "}#", "'#", "x=(", "-A ", "readonly ", "typeset ", "'($(touch FLAG))'", "<in ", "1<", "0<", "2<&0 ", "/dev/stdout", "/dev/stdin", "/dev/fd/1", "/proc/self/fd/0", ">$x", "chdir ",
}

func assemble(data []byte) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString(fragments[int(d)%len(fragments)])
	}
	return b.String()
}

// Forms of the data of FuzzOracle.
const (
	formText = iota
	formFragments
	formGrammar
	formDash = 4 // added to one of these: it is run by dash
)

// FuzzOracle compares the scan with what bash and dash do. The data is a text, a
// list of fragments, or the choices of the grammar.
func FuzzOracle(f *testing.F) {
	for _, text := range append(bypasses(f), lines(f, "testdata/harmless.txt")...) {
		f.Add(byte(formText), []byte(text))
		f.Add(byte(formText|formDash), []byte(text))
	}
	for _, text := range dashBypasses(f) {
		f.Add(byte(formText|formDash), []byte(text))
	}
	for i := range fragments {
		f.Add(byte(formFragments), []byte{byte(i), byte(i + 17), byte(i * 3), byte(i * 7), byte(i * 11)})
	}
	for i := range 256 {
		f.Add(byte(formGrammar|i%2*formDash), []byte{byte(i), byte(i * 7), byte(i * 11)})
	}
	f.Fuzz(func(t *testing.T, form byte, data []byte) {
		needOracle(t)
		text := string(data)
		switch form &^ formDash {
		case formText:
		case formFragments:
			text = assemble(data)
		case formGrammar:
			text = newGrammar(&choices{data: data}).text()
		default:
			return
		}
		if len(text) > 2000 || strings.Contains(text, "\x00") {
			return
		}
		shell := "bash"
		if form&formDash != 0 {
			shell = "dash"
		}
		h := fnv.New64()
		h.Write(data)
		checkIn(t, shell, text, newGrammar(rand.NewPCG(h.Sum64(), 3)).surroundings(shell, text))
	})
}

// FuzzScan checks that a scan ends, is bounded and always says the same.
func FuzzScan(f *testing.F) {
	for _, text := range append(bypasses(f), dashBypasses(f)...) {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, dash bool) {
		o := Options{Home: "/home/tool"}
		if dash {
			o.Shell = []string{"/bin/dash"}
		}
		r := Scan(text, o)
		if again := Scan(text, o); !sameResult(r, again) {
			t.Errorf("%q: %+v and then %+v", text, r, again)
		}
		if named := slices.DeleteFunc(slices.Concat(r.Paths, r.Writes), func(p Path) bool { return p.Name == "" }); len(r.Commands) > maxCommands || len(named)+len(r.Links) > maxPaths+2 || len(r.Paths)+len(r.Writes) > 2*maxPaths+2 {
			t.Errorf("%q: %d commands, %d paths, %d words", text, len(r.Commands), len(r.Paths)+len(r.Writes), len(r.Links))
		}
		if r.Opaque == (r.Why == "") {
			t.Errorf("%q: opaque %v because %q", text, r.Opaque, r.Why)
		}
		Canonical(text)
		if v := Visible(text); !plainlySeen(v) {
			t.Errorf("%q: shown as %q", text, v)
		}
	})
}

func sameResult(a, b Result) bool {
	return a.lists(&b) && slices.Equal(a.Links, b.Links) && a.Opaque == b.Opaque && a.Why == b.Why
}

func plainlySeen(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return hidden(r) })
}

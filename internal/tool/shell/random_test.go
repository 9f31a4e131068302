package shell

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// grammar makes texts that mostly are commands, deeper than mutation finds them.
type grammar struct {
	*rand.Rand
	depth int
}

func newGrammar(source rand.Source) *grammar { return &grammar{Rand: rand.New(source)} }

// choices makes a fuzzer's data the source of a grammar: a byte for each choice,
// and then as chance has it.
type choices struct {
	data []byte
	rest *rand.PCG
}

// Uint64 implements rand.Source.
func (c *choices) Uint64() uint64 {
	if c.rest == nil {
		h := fnv.New64()
		h.Write(c.data)
		c.rest = rand.NewPCG(h.Sum64(), 2)
	}
	if len(c.data) == 0 {
		return c.rest.Uint64()
	}
	b := c.data[0]
	c.data = c.data[1:]
	return uint64(b)<<56 | uint64(b)<<24 // IntN takes it from the top of 64 or of 32 bits
}

// text is a command of any kind, now and then one that is damaged.
func (g *grammar) text() string {
	text := g.command()
	if g.IntN(4) == 0 {
		at := g.IntN(len(text) + 1)
		text = text[:at] + g.pick(fragments...) + text[at:]
	}
	return text
}

// surroundings are what a session may have chosen for its shell, and a call for its text.
func (g *grammar) surroundings(shell, text string) surroundings {
	s := surroundings{
		home: g.pick("/w", "/w", "/w/d", "/w/d/e", "/w/d/inner"), oldpwd: g.pick("", "", "/w/d", "/w"), cdpath: g.pick("", "", "", "/w/d", ".:/w"),
		own: g.IntN(4) == 0, socket: shell == "bash" && g.IntN(2) == 0,
		argv: g.IntN(30) == 0 || g.IntN(2) == 0 && strings.Contains(text, "exec"), // which takes much longer
	}
	if s.workdir = g.pick("", "", "", "d", "d/e", "link", "/w/d", "./d/../d/inner", "d/back", "link/../inner", "~", "d/back/link"); s.workdir == "" {
		s.pwd = g.pick("", "", "", "", oracleBack)
	}
	return s
}

// list is a text that declare takes for a list of elements.
func (g *grammar) list() string {
	return g.pick(" ", "", "", "") + "(" + g.pick("$(touch z)", "`touch z`", "[$(touch z)]=a", g.word()) + ")"
}

// declaration is a command that gives a variable a value, maybe an array.
func (g *grammar) declaration() string {
	value := g.pick("$y", `"$y"`, "'"+strings.ReplaceAll(g.list(), "'", "")+"'", `"`+strings.ReplaceAll(g.list(), `"`, "")+`"`, `\(a)`, "(a b)", g.word())
	return g.pick("", "", "x=(a); ", "x[0]=a; ", "y='"+strings.ReplaceAll(g.list(), "'", "")+"'; ", "declare -a x; ", ": ${x[1]:=a}; ") +
		g.pick("export", "declare", "typeset", "readonly", "local") + g.pick(" ", " -a ", " -A ", " -x -a ", " -ga ", " -r ", " -- ") +
		g.pick("x", "x", "y", "x[0]") + g.pick("=", "=", "+=") + value
}

// closed is what ends with a bracket or a quote, after which "#" may or may not
// begin a comment.
func (g *grammar) closed() string {
	return g.pick("echo $(echo a)", "echo $((1))", "cat <(echo a)", "echo >(cat)", "x=(a)", "x=()", "echo a[1]", `echo "a"`, "echo 'a'", "echo $'a'", "echo ${x}", "echo ${x:-a}",
		"echo `echo a`", "(echo a)", "((1))", "[[ a ]]", "[[ a == (b) ]]", "{ echo a; }", "if true; then echo a; fi", "case a in a) echo b; esac", "case a in (a)", "echo {a,b}", "echo $[1]", "echo a\\)", "f()")
}

// redirection is one of any descriptor, to and from files and other descriptors.
func (g *grammar) redirection() string {
	if g.IntN(3) == 0 {
		return " " + g.pick("", "0", "1", "2", "3", "10", "01") + g.pick("<&", ">&") + g.pick("0", "1", "2", "3", "10", "3-", "-", "01")
	}
	return " " + g.pick("", "0", "1", "2", "3", "10", "01") + g.pick("<", "<", ">", ">>", "<>", ">|", "&>") +
		g.pick("in", "in", "/dev/stdout", "/dev/stdin", "/dev/stderr", "/dev/fd/0", "/dev/fd/1", "/dev/fd/3", "/proc/self/fd/1", "/dev/null", "/dev//stdout", "d/../in", "f", "$x", `"$x"`, "~/in", g.tilde(), "i?", g.word())
}

// tilde is a file in the home directory, or in one that is called as it is written.
func (g *grammar) tilde() string {
	return g.pick("~", "~", `~""`, `"~"`, `'~'`, `\~`, "~+", "~d", "~{,a}", "~?", `~"$x"`, "~$x", "~`:`", "~$(:)") + g.pick("/", "/", `\/`, `"/"`, `'/'`, "/d/") + g.pick("f", "f", "s", "s", `"f"`, "f*", "")
}

// kind is a command of a program that has options before the words that say what it does.
func (g *grammar) kind() string {
	outer := g.pick("", "", "", "exec ", "exec -a x ", "exec -l ", "exec -a git ", `exec -a "$x" `, "exec -cl ", "exec -a git-push ", "command exec -a npm ", "exec -ca docker ", "nice ")
	dir := g.pick("", "", "", gitCores[0]+"/", gitCores[1]+"/", `"`+gitCores[1]+`"/`)
	if strings.Contains(dir, "core") {
		return outer + dir + "git-" + g.pick(gitPrograms...) + g.pick("", " x", " -C d", " >f", " pop", " $x")
	}
	var program string
	var options []string
	switch program = g.pick("git", "git", "docker", "kubectl", "npm"); program {
	case "git":
		options = []string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source", "--shallow-file", "-p", "-P", "--no-pager", "--bare", "--no-replace-objects", "--no-literal-pathspecs", "--exec-path", "--no-optional-locks", "--new"}
	case "docker":
		options = []string{"--config", "-c", "--context", "-H", "--host", "-l", "--log-level", "-D", "--debug", "--tls", "--tlskey", "-Hx", "--new"}
	case "kubectl":
		options = []string{"--as", "--context", "--kubeconfig", "-n", "--namespace", "-s", "-v", "--match-server-version", "-v5", "--new"}
	case "npm":
		options = []string{"--prefix", "-C", "--registry", "--loglevel", "-w", "-s", "--silent", "-g", "--json", "--new"}
	}
	text := outer + dir + program
	for range g.IntN(4) {
		text += " " + g.pick(options...) + g.pick("", "", " ", " ", "=") + g.pick("x", "d", "push", "a=b", `"push"`, `"$x"`, "$x", "''", `"$x"y`, "-c", "--", "", "")
	}
	return text + " " + g.pick("push", "push", "run", "delete", "publish", `"push"`, "status", `pu\sh`, "$x", `"$x"`, "") + g.pick("", " x", " --force", " $x", " >f")
}

// script is a command that runs a file which is in more directories than one.
func (g *grammar) script() string {
	moved := g.pick("", "", "cd d; ", "cd d && ", "cd d/e || exit; ", "cd link && ", "(cd d); ", "cd d & ", "cd nowhere; ", "cd nowhere && ", "cd ..; ", "cd /w/d\n", "cd ~/d; ", "cd; ", "for x in a b; do cd d; done; ", "x=s; ",
		"cd "+g.tilde()+"; ", "cd "+g.tilde()+" && ", "x="+g.tilde()+"; ",
		"if cd d; then :; fi; ", "! cd d; ", "cd d || cd d/e; ", "cd d && cd inner; ", "true || cd d; ")
	outer := g.pick("", "", "", "env ", "nice -n 1 ", "exec ", "command ", "timeout 5 ", "env -C d ", "time ", "! ", "nohup ", "setsid -w ")
	file := g.pick("s", "./s", "d/s", "e/s", "d/e/s", "inner/s", "link/s", "../s", "/w/s", "/w/d/s", "~/s", "~/d/s", `"s"`, `'d'/s`, `d/"s"`, "./d/s", "s*", "d/?", "$x", `"$x"`, "{s,d/s}", "./*", "~", `"~"/s`, `~""/s`, `\~/s`, `'~'/s`, "~+/s", "~''/d/s", `~"/s"`, `~\/s`)
	var how string
	switch g.IntN(4) {
	case 0:
		how = g.pick("./s", "d/s", "e/s", "./d/e/s", "link/s", "../s", "/w/d/s", "~/s", `./"s"`, "./s*")
	case 1:
		// With -l, perl has the dash of a "#!" line begin as a login shell; that is perl's affair.
		how = "/usr/bin/perl" + g.pick("", " -w", " -I d", " -Id", " -I s.pl", " -0777", " -s", " --", " -i.bak", " -n", " -I d -w --", " -x", ` -I "$x"`, " -I $x", " -f", " -e 1", " -le 1", " -Mstrict", " -c") + " " + strings.NewReplacer("s", "s.pl", "$x", "s.pl").Replace(file)
	default:
		how = g.pick("sh", "bash", "dash", "/bin/bash", "/bin/dash", ".", "bash", "sh") + g.pick("", "", " -e", " -u", " -eu", " +x", " --", " --norc", " --posix", " -o errexit", " -eo pipefail", " -O extglob", " --rcfile d/s", " --init-file s", " -o") + " " + file
	}
	return moved + outer + how + g.pick("", "", " a", " s", " d/s", " -e") + g.pick("", "", "; true", " | cat", " >/dev/null", " &", " && ./s")
}

// connected is a command that runs a shell while a connection is open.
func (g *grammar) connected() string {
	to := " " + g.pick("<", "<>", "0<>", "<", "3<") + g.pick("/dev/tcp/127.0.0.1/7", "/dev/tcp/127.0.0.1/7", "$y", `"/dev/$y"`, "/dev/tc?/127.0.0.1/7")
	run := g.pick("", "", "env ", "nice ", "exec ", "command ") + g.pick("bash -c ", "bash -ec ", "sh -c ", "/bin/bash -c ") + quoted(g.pick("echo a", "cat", g.command()))
	return g.pick("", "y=/dev/tcp/127.0.0.1/7; ", "y=tcp/127.0.0.1/7; ") + g.pick(run+to, "{ "+run+"; }"+to, "exec"+to+"; "+run, "exec"+to+"; "+run+" <&3", run+to+" | cat")
}

func (g *grammar) pick(list ...string) string { return list[g.IntN(len(list))] }

// command is a command of any kind.
func (g *grammar) command() string {
	if g.depth++; g.depth > 6 {
		g.depth--
		return g.pick("touch a", "echo b", "git c", ":")
	}
	defer func() { g.depth-- }()
	switch g.IntN(26) {
	case 0:
		return g.command() + g.pick("; ", " && ", " || ", " | ", " & ", "\n", ";", "|", "&&") + g.command()
	case 1:
		return "( " + g.command() + g.pick(" )", "; )", "\n)")
	case 2:
		return "{ " + g.command() + g.pick("; }", "\n}")
	case 3:
		return "if " + g.command() + "; then " + g.command() + g.pick("; fi", "; else "+g.command()+"; fi")
	case 4:
		return "for x in " + g.word() + "; do " + g.command() + "; done"
	case 5:
		return "case " + g.word() + " in " + g.pick("", "(") + g.word() + ") " + g.command() + g.pick(" ;;", "") + " esac"
	case 6:
		return "cat <<" + g.pick("A", "'A'", "\"A\"", "-A", `\A`) + g.pick("", " | "+g.command(), " && "+g.command()) + "\n" + g.word() + g.pick("", "\n", " # ", "\nA x\n") + g.word() + "\nA\n"
	case 7:
		return "[[ " + g.word() + g.pick(" == ", " != ", " < ", " && ") + g.word() + " ]]"
	case 8:
		return g.pick("! ", "time ", "command ", "env ", "nice ", "exec ", "exec -a a ", "exec -l ", "timeout 5 ", "x=1 ", "x="+g.word()+" ") + g.command()
	case 9:
		return g.pick("sh -c ", "bash -c ", "sh +c ", "bash +ec ") + g.pick(`"`, `'`) + strings.NewReplacer(`"`, "", "'", "").Replace(g.command()) + g.pick(`"`, `'`)
	case 10:
		return g.command() + g.pick(" # ", " #", "#", "\n#", "; # ") + g.word() + "\n" + g.command()
	case 11:
		return g.command() + g.pick(" >", " <", " 2>", " >>", " <<<", " >&", " &>", ">") + g.word()
	case 12:
		return "cd " + g.pick("d", "..", "e", "x", "~", "/w/d", "*", "d*", "?") + g.pick(" && ", "; ", " || ", "\n") + g.command() + " >" + g.pick("f", "d/f", "../f")
	case 13:
		return "x=" + g.word() + "; " + g.command()
	case 14:
		return g.declaration() + g.pick("; ", " && ", "\n") + g.command()
	case 15:
		begin, end, _ := strings.Cut(g.pick("X", "( X)", "echo $(X)", "echo $( X)", "cat <(X)", "{ X}", "case a in a) X;; esac", "if X then echo a; fi", "for x in a; do X done"), "X")
		return begin + g.closed() + g.pick("#", "#", "#", " #", "\t#", ";#", "&#", "|#") + g.pick(" b; ", "b; ", "' ; ", "") + g.command() + g.pick("\n", "\n", "\n'\n") + end
	case 16:
		return g.pick("echo a", "{ echo a; }", "cat", "{ cat; echo a; }", "( echo a"+g.redirection()+" )", g.command()) + g.redirection() + g.pick("", g.redirection())
	case 17:
		if g.IntN(6) == 0 {
			return g.connected()
		}
		return g.pick("x=in; ", "x=f; ", "for x in f in; do ", "exec"+g.redirection()+"; ", "cd /dev; ") + "echo a" + g.redirection() + g.pick("", "; done")
	}
	switch g.IntN(24) {
	case 0:
		return g.pick("", "cd d; ", "x=a; ", "cd "+g.tilde()+"; ") + "echo a" + g.pick(" >", " >", " <", " <", " <>", " >>") + g.tilde()
	case 3:
		begin, end, _ := strings.Cut(g.pick("x=X; Y", "x=X\nY", "x=X && Y", "export x=X; Y", "x=a:X; Y", "x=$y"+"X; Y", "declare x=X; Y", "x=a; x+=X; Y", "readonly x=X; Y", "for x in X; do Y; done", "env x=X; Y", "x=b y=X; Y", "x=X Y", "f() { local x=X; Y; }; f"), "X")
		write := "echo a >" + g.pick("$x", "$x", `"$x"`, "$x/f", "${x}f", "${x#a:}", "${x:-f}")
		return begin + g.tilde() + strings.Replace(end, "Y", write, 1)
	case 1:
		return "cd " + g.pick("link/../inner", "link/..", "/w/link/../inner", "./link/./../inner", "d/../d/inner", "link; cd ../inner", "d/e && cd ../inner", "link && cd ..", "-- link/../inner", `"link"/../inner`) +
			g.pick("; ", " && ", "\n") + "echo a >" + g.pick("f", "./f", "d/f", g.tilde())
	case 2:
		return g.pick("env -i ", "exec ", "exec env ", "exec nice ", "command exec ", "BASH_ENV=~/.bashrc ", "ENV=~/.shrc ", "env BASH_ENV=/w/.bashrc ", "export ENV; exec ", "SSH_CLIENT=a ", "env -u HOME ", "exec -c ", "env --unset=HOME nice ", "env -i env ", "env ", "command exec -a sh ", "exec -a x ", "exec -l ") +
			g.pick("sh", "bash", "/bin/sh", "/bin/bash", "dash") + g.pick(" -c ", " -c ", " -lc ", " -ec ", " --login -c ", " -ic ", " +lc ", " -l +c ", " --norc -c ", " --rcfile ~/.bashrc -c ") + quoted(g.pick("", "cd; ", "cd ~; ", "cd d; ")+"echo a >"+g.pick("f", g.tilde()))
	}
	switch g.IntN(8) {
	case 0:
		return g.script()
	case 1:
		return g.kind()
	}
	text := g.pick("touch", "echo", "git", "ls", "cat", "printf", "[", "find", "b")
	for range g.IntN(4) {
		text += " " + g.word()
	}
	if strings.HasPrefix(text, "[") {
		text += " ]"
	}
	return text
}

// word is a word of any kind.
func (g *grammar) word() string {
	if g.depth++; g.depth > 7 {
		g.depth--
		return g.pick("a", "1", "''", `""`, "$x", "-x")
	}
	defer func() { g.depth-- }()
	var b strings.Builder
	for range 1 + g.IntN(3) {
		switch g.IntN(16) {
		case 0:
			b.WriteString(`"` + g.word() + `"`)
		case 1:
			b.WriteString("'" + strings.ReplaceAll(g.word(), "'", "") + "'")
		case 2:
			b.WriteString("$(" + g.command() + g.pick(")", "\n)", " )"))
		case 3:
			b.WriteString("`" + strings.ReplaceAll(g.command(), "`", "") + "`")
		case 4:
			b.WriteString("${x" + g.pick(":-", ":+", "#", "%%", "/", "//a/", ":=", "-", "^", "@") + g.word() + "}")
		case 5:
			b.WriteString(g.pick("<(", ">(") + g.command() + ")")
		case 6:
			b.WriteString("\\" + g.pick("a", " ", "$", "`", `"`, "'", "\\", "#", "(", "\n", ";", "&"))
		case 7:
			b.WriteString(g.pick("$'", `$"`) + g.pick("a", `\'`, `\"`, `\x27`, " ; touch z ") + g.pick("'", `"`))
		case 8:
			b.WriteString("$((" + g.pick("1", "1+2", "x", g.word()) + "))")
		case 9:
			b.WriteString("{" + g.word() + g.pick(",", "..") + g.word() + "}")
		case 10:
			b.WriteString(g.pick("#", "=", "!", "~", "*", "?", "[", "]", "}", "%", ",", ":", "^", "@", "$", "é", "-"))
		default:
			b.WriteString(g.pick("a", "b", "1", "x", "$x", "$#", "FLAG", "d/x", "/w/y"))
		}
	}
	return b.String()
}

// batch is how many texts are made by one generator.
const batch = 250

// generate has f judge texts, in as many goroutines as there are processors: a few and always the
// same, unless TOOLD_TEST_LONG is set; TOOLD_SHELL_RANDOM and TOOLD_SHELL_SEED say how many, and
// by which seed.
func generate(t *testing.T, short, long int, f func(g *grammar, text string)) (count int) {
	t.Helper()
	seed := uint64(1)
	count = short
	if os.Getenv("TOOLD_TEST_LONG") != "" {
		count, seed = long, rand.Uint64()
	}
	if n, err := strconv.Atoi(os.Getenv("TOOLD_SHELL_RANDOM")); err == nil {
		count, seed = n, rand.Uint64()
	}
	if n, err := strconv.ParseUint(os.Getenv("TOOLD_SHELL_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("%d texts, TOOLD_SHELL_SEED=%d", count, seed)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n*batch >= count {
					return
				}
				g := newGrammar(rand.NewPCG(seed, uint64(n)))
				for range min(batch, count-n*batch) {
					f(g, g.text())
				}
			}
		})
	}
	workers.Wait()
	return count
}

// TestOracleOnRandomCommands compares the scan with bash and dash on generated commands.
func TestOracleOnRandomCommands(t *testing.T) {
	needOracle(t)
	var judged atomic.Int64
	count := generate(t, 300, 50_000, func(g *grammar, text string) {
		if shell := g.pick("bash", "bash", "dash"); len(text) <= 4000 && checkIn(t, shell, text, g.surroundings(shell, text)) {
			judged.Add(1)
		}
	})
	if n := int(judged.Load()); n < count/10 {
		t.Errorf("only %d of %d commands could be judged", n, count)
	}
	t.Logf("%d of %d commands were judged", judged.Load(), count)
}

// TestOracleOnScripts: each file that bash, dash and perl run by a path is among those that the scan names,
// whatever directory they are in: what is allowed of a file in one place is not of that in another. No start-up file
// runs that is not said.
func TestOracleOnScripts(t *testing.T) {
	needOracle(t)
	var judged atomic.Int64
	count := generate(t, 300, 50_000, func(g *grammar, _ string) {
		shell, text := g.pick("bash", "bash", "dash"), g.script()
		if g.IntN(4) == 0 {
			text = g.connected()
		}
		if checkIn(t, shell, text, g.surroundings(shell, text)) {
			judged.Add(1)
		}
	})
	if n := int(judged.Load()); n < count/10 {
		t.Errorf("only %d of %d commands could be judged", n, count)
	}
	t.Logf("%d of %d commands were judged", judged.Load(), count)
}

// linked is a command that has the name of a link among the words of a program, or of several.
func (g *grammar) linked() string {
	text := g.pick("", "", "", "", "env ", "nice -n 1 ", "exec ", "command ", "timeout 5 ", "! ", "time ", "nohup ", "x=1 ", "env x=1 ", "stdbuf -o 0 ", "xargs ", "xargs -n 1 ") + g.pick("touch", "git", "cat", "rm", "python3", "sort", "cp", "dd", "make", "npm", "go", "a", "b", "c", "x", "tee", "head")
	for range 1 + g.IntN(4) {
		text += g.pick(" ", " ", "  ", "\t", " \\\n") + g.pick("a", "-a", "--", "-n", "--x=a", "a=b", "b", "link", "'link'", `"link"`, `li\nk`, `l"in"k`, "'l'ink", "li\\\nk", `"li\`+"\n"+`nk"`, "''link", `link""`)
	}
	text += g.pick("", "", " >f", " <in", " 2>&1")
	switch g.IntN(12) {
	case 0:
		text = g.pick("( X )", "{ X; }", "X &", "X | cat", "echo a | X", "! X", "a=$(X)", "echo $(X)", "cat <(X)", "if X; then X; fi", "for i in a; do X; done", "f() { X; }; f", "case a in a) X;; esac", "X && X", "[[ a ]] && X", "cat <<A\n$(X)\nA\n")
		text = strings.ReplaceAll(text, "X", g.linked())
	case 1:
		text = g.pick("sh", "bash", "bash -e", "dash") + " -c " + quoted(text)
	}
	return g.pick("", "", "", "cd d; ", "cd d && ", "cd /w/d && ", "cd d/e || exit; ", "(cd d); ", "cd; ", "pushd d; ", "for i in a b; do cd d; done; ", "cd nowhere; ", "true && ") + text
}

// TestOracleOnLinks: where a program that bash or dash runs is given the name of a link as a word, the scan says so.
func TestOracleOnLinks(t *testing.T) {
	needOracle(t)
	var judged atomic.Int64
	count := generate(t, 300, 50_000, func(g *grammar, _ string) {
		shell, text, said := g.pick("bash", "bash", "dash"), g.linked(), false
		r := Scan(text, usual.options(shell))
		is := func(name string) bool { return name == "" || path.Base(name) == "link" }
		for _, list := range [][]Path{r.Paths, r.Writes} {
			said = said || slices.ContainsFunc(list, func(p Path) bool { return is(p.Name) })
		}
		said = said || slices.ContainsFunc(r.Links, func(l Link) bool { return is(l.Name) })
		if r.Opaque || len(text) > 4000 {
			return
		}
		for _, argv := range execute(t, shell, text).programs {
			if !slices.Contains(argv[1:], "link") {
				continue
			}
			if judged.Add(1); !said {
				t.Errorf("%s -c %q: %q was given a link of which nothing is said: %+v", shell, text, argv, r)
			}
		}
	})
	if n := int(judged.Load()); n < count/10 {
		t.Errorf("only %d of %d commands could be judged", n, count)
	}
	t.Logf("%d programs of %d commands were given a link", judged.Load(), count)
}

// TestQuickLooks: what a quick look at a text rules out is not found in its tree either.
func TestQuickLooks(t *testing.T) {
	t.Parallel()
	look := func(text string) (breaking, looping bool) {
		if _, ok := readable(text); !ok {
			return false, false
		}
		file, err := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
		if err != nil {
			return false, false
		}
		if _, breaking = breaks(file.Stmts, false); breaking && !mayBreak(text) {
			t.Errorf("%q may be left in the middle of a line", text)
		}
		syntax.Walk(file, func(n syntax.Node) bool {
			switch n.(type) {
			case *syntax.WhileClause, *syntax.ForClause:
				looping = true
			}
			return true
		})
		if looping && !mayLoop(text) {
			t.Errorf("%q has a loop", text)
		}
		return breaking, looping
	}
	for _, text := range []string{
		"x[0]=1", "x=([1]=a)", "x=( [1]=a )", "echo ${x:1}", "echo ${x[1]}", "echo ${#x[@]}", "[[ a -eq 1 ]]", "echo $((1))", "echo $[1]", "((1))", "for ((;;)); do :; done", "cd d; x[1]=2", "[[ a -lt b ]]", "declare -a x=([0]=b)",
	} {
		if breaking, _ := look(text); !breaking {
			t.Errorf("%q may not be left in the middle of a line", text)
		}
	}
	for _, text := range []string{"for x in a; do :; done", "for x in a; { :; }", "while :; do :; done", "until :; do :; done", "select x in a; do :; done", "for ((;;)); { :; }"} {
		if _, looping := look(text); !looping {
			t.Errorf("%q has no loop", text)
		}
	}
	for _, text := range []string{"[ -f x ] && cd y", "if [ a = b ]; then cd d; fi", "cd d\necho $x"} {
		if mayBreak(text) {
			t.Errorf("%q: the quick look rules nothing out", text)
		}
	}
	var found atomic.Int64
	generate(t, 5_000, 500_000, func(_ *grammar, text string) {
		if breaking, looping := look(text); breaking || looping {
			found.Add(1)
		}
	})
	if found.Load() < 100 {
		t.Errorf("only %d texts have what is looked for", found.Load())
	}
}

// TestWrappingChangesNothing: what bash -c runs is judged as by itself. Other ways to run it are
// judged no milder: whatever is listed, written or opaque by itself is so there.
func TestWrappingChangesNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"ls x/", "cd /workspace/", "echo a/", "cat a/ b", "./x/", "a/b -c /d/", "ls -la /cache/", "true > /x/y"} {
		for _, outer := range []string{"bash -c ", "bash -ec ", "env bash -c ", "nice bash -c ", "timeout 5 bash -c ", "/bin/bash -c ", "sh -c ", "env sh -c "} {
			r := Scan(text, Options{Home: "/w"})
			if in := Scan(outer+"'"+text+"'", Options{Home: "/w"}); in.Opaque || r.Opaque || !slices.Equal(in.Paths, r.Paths) || !slices.Equal(in.Writes, r.Writes) || !slices.Equal(in.Links, r.Links) {
				t.Errorf("%s'%s': %+v, by itself %+v", outer, text, in, r)
			}
		}
	}
	generate(t, 5_000, 500_000, func(g *grammar, text string) {
		if len(text) > 4000 || strings.ContainsAny(text, "\x00\r") {
			return
		}
		script := "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
		o := Options{Home: g.pick("/w", "/w", ""), Workdir: g.pick("", "", "d", "/x/y", ".."), Astray: g.IntN(4) == 0}
		r := Scan(text, o)
		for _, outer := range []string{"bash -c ", "bash -ec ", "env bash -c ", "nice bash -c ", "command bash -c ", "/bin/bash -c "} {
			in := Scan(outer+script, o)
			if why := milder(in, r); why != "" {
				t.Errorf("%s%s: %s", outer, script, why)
			}
			if why := more(in, r); why != "" {
				t.Errorf("%s%s: %s", outer, script, why)
			}
			if in.Opaque != r.Opaque && !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "+") && len(r.Commands) > 0 {
				t.Errorf("%s%s: opaque %v (%s), without %v (%s)", outer, script, in.Opaque, in.Why, r.Opaque, r.Why)
			}
		}
		for _, outer := range []string{"sh -c ", "exec bash -c ", "env -S ", "env -i sh -c ", "bash -c 'bash -c \"$0\"' ", "timeout 5 sh -ec "} {
			if why := milder(Scan(outer+script, o), r); why != "" {
				t.Errorf("%s%s: %s", outer, script, why)
			}
		}
		simple := g.pick("touch", "git", "ls", "cat", "b", "find", "printf", "rm", "./x", "d/x") + " " + g.word() + g.pick("", g.redirection())
		r = Scan(simple, o)
		for _, outer := range []string{"env ", "command ", "exec ", "env -S ", "nice ", "env -u X ", "exec -c ", "command -p ", "env X= "} {
			if why := milder(Scan(outer+simple, o), r); why != "" {
				t.Errorf("%s%s: %s", outer, simple, why)
			}
		}
	})
}

// more says what the scan of a script that is wrapped, in, names that r, which is that of the script, does not; "" where that is
// nothing.
func more(in, r Result) string {
	if in.Opaque || r.Opaque {
		return ""
	}
	for _, p := range in.Writes {
		if !slices.ContainsFunc(r.Writes, func(o Path) bool { return o.Name == p.Name }) {
			return "it lists that it writes " + p.Text + ", which it does not by itself"
		}
	}
	for _, p := range in.Paths {
		if !slices.ContainsFunc(r.Paths, func(o Path) bool { return o.Name == p.Name && o.Weak == p.Weak && o.Matched == p.Matched }) {
			return "it lists the path " + p.Text + ", which it does not by itself"
		}
	}
	for _, l := range in.Links {
		if !slices.ContainsFunc(r.Links, func(o Link) bool { return o.Name == l.Name }) {
			return "it lists the word " + l.Text + ", which it does not by itself"
		}
	}
	return ""
}

// milder says what of r is not in the scan of what runs the same, in; "" where all is. What is
// opaque there is asked for as a whole.
func milder(in, r Result) string {
	switch {
	case in.Opaque:
		return ""
	case r.Opaque:
		return "it is not opaque, which it is by itself: " + r.Why
	}
	for _, c := range r.Commands {
		if !slices.ContainsFunc(in.Commands, func(o Command) bool { return o.Text == c.Text }) {
			return "it does not list " + c.Text
		}
	}
	for _, p := range r.Writes {
		if !slices.ContainsFunc(in.Writes, func(o Path) bool { return o.Name == p.Name || o.Name == "" }) {
			return "it does not list that it writes " + p.Text
		}
	}
	for _, p := range r.Paths {
		if !slices.ContainsFunc(in.Paths, func(o Path) bool { return o.Name == p.Name || o.Name == "" }) && len(in.Paths) < maxPaths {
			return "it does not list the path " + p.Text
		}
	}
	unknown := slices.ContainsFunc(in.Paths, func(o Path) bool { return o.Name == "" })
	for _, l := range r.Links {
		if !unknown && !slices.ContainsFunc(in.Links, func(o Link) bool { return o.Name == l.Name }) && !slices.ContainsFunc(in.Paths, func(o Path) bool { return o.Name == l.Name }) {
			return "it does not list the word " + l.Text
		}
	}
	return ""
}

package shell

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// grammar makes texts that mostly are commands, deeper than mutation finds them.
type grammar struct {
	*rand.Rand
	depth int
}

func (g *grammar) pick(list ...string) string { return list[g.IntN(len(list))] }

// command is a command of any kind.
func (g *grammar) command() string {
	if g.depth++; g.depth > 6 {
		g.depth--
		return g.pick("touch a", "echo b", "git c", ":")
	}
	defer func() { g.depth-- }()
	switch g.IntN(22) {
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
		return g.pick("! ", "time ", "command ", "env ", "nice ", "exec ", "timeout 5 ", "x=1 ", "x="+g.word()+" ") + g.command()
	case 9:
		return g.pick("sh -c ", "bash -c ") + g.pick(`"`, `'`) + strings.NewReplacer(`"`, "", "'", "").Replace(g.command()) + g.pick(`"`, `'`)
	case 10:
		return g.command() + g.pick(" # ", " #", "#", "\n#", "; # ") + g.word() + "\n" + g.command()
	case 11:
		return g.command() + g.pick(" >", " <", " 2>", " >>", " <<<", " >&", " &>", ">") + g.word()
	case 12:
		return "cd " + g.pick("d", "..", "e", "x", "~", "/w/d") + g.pick(" && ", "; ", " || ", "\n") + g.command() + " >" + g.pick("f", "d/f", "../f")
	case 13:
		return "x=" + g.word() + "; " + g.command()
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

// TestOracleOnRandomCommands compares the scan with bash on generated commands;
// TOOLD_SHELL_RANDOM says on how many.
func TestOracleOnRandomCommands(t *testing.T) {
	needOracle(t)
	count, seed := 300, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("TOOLD_SHELL_RANDOM")); err == nil {
		count, seed = n, rand.Uint64()
	}
	judged := 0
	g := &grammar{Rand: rand.New(rand.NewPCG(seed, 2))}
	for range count {
		text := g.command()
		if g.IntN(4) == 0 { // and one that is damaged
			at := g.IntN(len(text) + 1)
			text = text[:at] + g.pick(fragments...) + text[at:]
		}
		if len(text) > 4000 || Scan(text, Options{Home: "/w"}).Opaque {
			continue
		}
		judged++
		checkAgainst(t, text, execute(t, text))
	}
	if judged < count/10 {
		t.Errorf("only %d of %d commands could be judged", judged, count)
	}
	t.Logf("%d of %d commands were judged", judged, count)
}

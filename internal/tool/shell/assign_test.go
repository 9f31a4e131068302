package shell

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// spelling is value in a random spelling of bash, and without quotes where that is the same.
func spelling(r *rand.Rand, value string) string {
	var b strings.Builder
	for i := 0; i < len(value); {
		n := min(1+r.IntN(3), len(value)-i)
		part := value[i : i+n]
		i += n
		switch how := r.IntN(7); {
		case how == 0 && !strings.Contains(part, "'"):
			b.WriteString("'" + part + "'")
		case how == 1 && !strings.ContainsAny(part, "$`\"\\\n"):
			b.WriteString([]string{`"`, `$"`}[r.IntN(2)] + part + `"`)
		case how == 2 && !strings.Contains(part, "\n"):
			for _, c := range part {
				b.WriteString(`\` + string(c))
			}
		case how == 3:
			b.WriteString("$'")
			for _, c := range []byte(part) {
				fmt.Fprintf(&b, []string{`\x%02x`, `\%03o`, `\u00%02x`, `\U000000%02x`}[r.IntN(4)], c)
			}
			b.WriteString("'")
		case how == 4:
			b.WriteString([]string{"''", `""`, "$''"}[r.IntN(3)])
			i -= n
		case strings.Trim(part, "abjs1") == "":
			b.WriteString(part)
		default:
			b.WriteString(quoted(part))
		}
	}
	return b.String()
}

// says reports whether a reading of a command in r begins with want.
func says(r Result, want string) bool {
	return slices.ContainsFunc(r.Commands, func(c Command) bool {
		return slices.ContainsFunc(append(strings.Split(c.Also, "\x00"), c.Text, c.Variables+c.Text), func(reading string) bool { return strings.HasPrefix(reading+" ", want+" ") })
	})
}

// TestSpellingsOfVariables: whatever the spelling of what a variable is set to, a reading of the command has it
// as bash does.
func TestSpellingsOfVariables(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var value string
		for range 1 + r.IntN(4) {
			value += []string{"js", "a", "1", "b", " ", "*", "$x", "'", `"`, `\`, "\n", "\t", "=", "{a,b}", "?"}[r.IntN(15)]
		}
		sets := "GOOS=" + spelling(r, value)
		if text := "GOOS=" + bashReads(t, sets, value); text != "" {
			for way, want := range map[string]string{
				"%s go build": " go build", "CI=1 %s X=y go build": " go build", "env %s go build": " go build", "env CI=1 nice -n 5 env %s go build": " go build",
				"%s nice go build": " go build", "%s sh -c 'go build'": " go build", "%s find . -exec go build \\;": " go build", "%s /usr/bin/go build >x": " go build >x",
				"%s git -C x push": " git push", "%s npm --prefix x publish": " npm publish", "%s $x build": " $x build", "export %s; go build": "", "CI=1; %s; go build": "", "declare -x %s; :": "", "'export' A=b %s; :": "",
			} {
				if strings.Contains(way, "env") && strings.ContainsAny(value, "*?{") {
					continue // those may be wildcards there
				}
				if command := fmt.Sprintf(way, sets); !says(Scan(command, Options{}), text+want) {
					t.Errorf("%q: no reading begins with %q: %+v", command, text+want, Scan(command, Options{}).Commands)
				}
			}
		}
	}
}

// bashReads is the value of GOOS by what sets it, as bash reads that: value, where bash is not at hand.
func bashReads(t *testing.T, sets, value string) string {
	t.Helper()
	if !hasOracle() {
		return value
	}
	x := execute(t, "bash", sets+` bash -c 'touch "$GOOS"'`)
	if len(x.programs) != 1 || len(x.programs[0]) != 2 || x.programs[0][1] != value {
		t.Errorf("%q is no spelling of %q: %q", sets, value, x.programs)
	}
	return value
}

package policy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestHostileRules has rules of the shapes that cost most of all that fit in the
// text: what they cost is bounded. Without the bounds the test does not end.
func TestHostileRules(t *testing.T) {
	const most = 1 << 20
	long := numbered("a%d; ", 3000)
	for name, tt := range map[string]struct{ doc, want string }{
		"inline tables": {"permission = " + strings.Repeat("{a=", most/4) + "1" + strings.Repeat("}", most/4), "is nested more than 16 deep"},
		"dotted keys":   {"permission" + strings.Repeat(".a", most/2) + " = 1", "is nested more than 16 deep"},
		"elements":      {"[tenant.a]\nprofiles = [" + strings.Repeat("'a',", most/4) + "]", "there are more than 50000 keys and elements"},
		"rules":         {"[permission.bash]\n" + numbered("'a%d' = 'ask'\n", 12000), "there are more than 5000 rules"},
		"bare commands": {"[permission.bash]\n" + numbered("'a%d' = 'ask'\n", maxRules-10), ""},
		"tenants' rules": {
			numbered("[tenant.t%d.permission]\na = 'allow'\n", maxRules-10), "",
		},
		"profiles' rules": {
			numbered("[[rule]]\npermission = 'bash'\npattern = 'a'\naction = 'ask'\nprofile = 'p%d'\n", maxRules-10), "",
		},
		"profiles": {numbered("[profile.p%d]\n", 20000), "there are more than 500 profiles"},
		"profiles that are not": {
			numbered("[profile.profile-of-the-number-%d]\n", maxProfiles-10) + "[tenant.a]\nprofiles = [" + numbered("'profile-of-the-numbers-%d',", 40000) + "]\n",
			"there is no profile",
		},
		"tests": {
			"[permission.bash]\n" + numbered("'a%d' = 'ask'\n", 4900) + strings.Repeat("[[test]]\ntool='bash'\nexpect='allow'\ninput={command='"+long+"'}\n", 80),
			"number 2 of 80, take too long: remove some",
		},
		"tests of tenants": {
			"[permission.bash]\n" + numbered("'a%d' = 'ask'\n", 4900) + numbered("[[test]]\ntool='read'\nexpect='allow'\ninput={file_path='a'}\ntenant='t%d'\n", 3600),
			"of 3600, take too long: remove some",
		},
		"tests of profiles": {
			numbered("[profile.p%d]\n", maxProfiles-10) + strings.Repeat("[[test]]\ntool='bash'\nexpect='ask'\nprofile='x'\n", 9000),
			"8900 more tests were not tried",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse("f", []byte(tt.doc))
			runtime.ReadMemStats(&after)
			if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) && tt.want != "" {
				t.Errorf("got %.300s", got)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 512<<20 {
				t.Errorf("took %d bytes", n)
			} else {
				t.Logf("%d bytes of text, %d KiB allocated", len(tt.doc), n>>10)
			}
		})
	}
}

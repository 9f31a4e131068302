package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Random rules: where all of a directory is said to be allowed, so is each path in it; and rules for it
// alone that allow it are seen to.
func TestAllowsAll(t *testing.T) {
	t.Parallel()
	patterns := []string{"*", "/*", "/d", "/d/*", "/d*", "/d/a", "/d/a/*", "/d/?", "/*/a", "*a", "/e", "/e/*", "/d/*a*", "~/*", "d/*", "/?/*"}
	actions := []Action{Allow, Allow, Ask, Deny}
	names, yes := []string{"a", "b", "aa", "a/b", "b/a/b", "ab", "c/a", "zz"}, 0
	for seed := range uint64(4000) {
		random := rand.New(rand.NewPCG(seed, 2))
		var all strings.Builder
		fmt.Fprintln(&all, "[permission.external_directory]")
		for _, i := range random.Perm(len(patterns))[:1+random.IntN(5)] {
			fmt.Fprintf(&all, "%q = %q\n", patterns[i], actions[random.IntN(len(actions))])
		}
		set, err := Parse("rules.toml", []byte(all.String()))
		if err != nil {
			t.Fatal(err)
		}
		stack, err := set.Stack(DefaultProfile, "default")
		if err != nil {
			t.Fatal(err)
		}
		if !stack.AllowsAll("/d") {
			continue
		}
		yes++
		for _, name := range append(names, "") {
			p := strings.TrimSuffix("/d/"+name, "/")
			if v := stack.JudgeOne(&Request{Permission: PermissionExternal, Pattern: p, Path: p}); v.Action != Allow {
				t.Errorf("%s%s is not allowed, and all is", &all, p)
			}
		}
	}
	if yes < 100 {
		t.Errorf("all was allowed %d times", yes)
	}
	for text, want := range map[string]bool{
		`"/d" = "allow"`:                           false,
		`"/d/*" = "allow"`:                         false,
		"\"/d\" = \"allow\"\n\"/d/*\" = \"allow\"": true,
		`"*" = "allow"`:                            true,
		"\"/d/a\" = \"deny\"\n\"/d*\" = \"allow\"": true,
		"\"/d*\" = \"allow\"\n\"/d/a\" = \"deny\"": false,
		"\"/d*\" = \"allow\"\n\"/da\" = \"deny\"":  true,
		"\"/d*\" = \"allow\"\n\"*a\" = \"ask\"":    false,
		"\"/d*\" = \"allow\"\n\"/e*\" = \"deny\"":  true,
	} {
		set, err := Parse("rules.toml", []byte("[permission.external_directory]\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if stack, err := set.Stack(DefaultProfile, "default"); err != nil || stack.AllowsAll("/d") != want {
			t.Errorf("%s: %v, %v", text, !want, err)
		}
	}
}

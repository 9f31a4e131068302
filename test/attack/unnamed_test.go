package attack

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// F16: a path that is only known at run time leads to nothing that is mounted, unless somebody was
// asked about it.
func TestF16UnnamedMounts(t *testing.T) {
	extra := t.TempDir()
	must(t, os.Chmod(extra, 0o755))
	must(t, os.WriteFile(extra+"/f", []byte("secret\n"), 0o644))
	s := newScene(t, "[approvals]\napprover = \"none\"\n[profile.asks.permission]\nexternal_directory = \"ask\"\n[profile.open.permission]\nexternal_directory = \"allow\"\n")
	allowMount(t, s.rig, extra)
	_, err := s.admin.Reload(t.Context(), false)
	must(t, err)
	ask := client.SessionCreate{Worktree: client.Worktree{Source: s.tree}, Mounts: []client.Mount{{Source: extra, Target: "/data"}}}
	ask.Profile = "asks"
	x := s.session(t, s.a, ask)
	ask.Profile = "open"
	control := s.session(t, s.a, ask)
	ways := 0
	s.bash(t, "ln -s /data l; ln -s /data/f lf; echo /data/f >names; mkdir d; ln -s / d/root; mkdir e; ln -s /data e/x")
	lead := map[string]string{
		"literal":       "cat /data/f",
		"other program": "fold /data/f",
		"link":          "base64 -w0 lf | base64 -d",
		"unlisted":      "shuf lf",
		"xargs":         "echo /data/f | xargs cat",
		"xargs file":    "xargs cat <names",
		"xargs shell":   "xargs -I{} sh -c 'cat {}' <names",
		"dd":            "dd if=lf",
		"find":          "find -L l -type f -exec cat {} +",
		"find all":      "find -L e -name f -exec cat {} +",
		"grep":          "grep -R secret e",
		"list":          "printf '/data/f\\0' >n0; sort --files0-from=n0",
		"archived list": "tar cf - -T names | tar xOf -",
		"recursive":     "mkdir -p g/x; diff -rN e g",
		"copy links":    "rm -rf copied; cp -rL e copied; cat copied/x/f",
		"tar":           "tar chf - e | tar xOf - e/x/f",
		"cd":            "cd d/root && cat data/f",
		"variable":      "d=/da; cat ${d}ta/f",
		"run time":      "cat $(cat names)",
		"read":          "while read n; do cat $n; done <names",
		"for":           "for f in l/*; do cat $f; done",
		"glob":          "set -- l/*; echo $1 | sed s,l/f,secret,",
		"array":         "a=(l/*); echo ${a[0]} | sed s,l/f,secret,",
		"iconv":         "iconv lf",
		"openssl":       "openssl base64 -A -in lf | base64 -d",
		"column":        "column $(cat names)",
		"proc":          "cd /proc/self/root && cat data/f",
		"descriptor":    "exec 9<lf; cat <&9",
		"copy":          "cp lf copy; cat copy",
		"archive":       "tar chf - l | tar xOf - l/f",
		"in background": "setsid cat $(cat names) & wait",
	}
	if c := bash(t, s.a, x.ID, "cat $(cat names)"); c.Error == nil { // it is kept from the command, not asked about
		maps.Copy(lead, map[string]string{"wildcard": "cat lf*", "braces": "cat {lf,lf}", "within": "cat e/*/f", "redirected": "cat <lf*"})
	}
	for check, way := range lead {
		c := bash(t, s.a, x.ID, way)
		holds(t, check, !strings.Contains(c.Output, "secret"), "%s: %+v %q", way, c.Error, c.Output)
		// Control: where rules let calls use the mount, that is a way to it, if the tier has the program.
		switch c := bash(t, s.a, control.ID, way); {
		case strings.Contains(c.Output, "secret"):
			ways++
		case !strings.Contains(c.Output, "not found") && !strings.Contains(c.Output, "failed to execute"):
			t.Errorf("control: %s: %+v %q", way, c.Error, c.Output)
		}
	}
	if ways < 15 {
		t.Errorf("control: only %d ways lead there", ways)
	}
	for _, session := range []*client.Session{x, control} {
		_, err := s.a.EndSession(t.Context(), session.ID, client.EndOptions{Force: true})
		must(t, err)
	}
}

package attack

import (
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
)

// F16: what is mounted and asked about is reached by no command that somebody was not asked about,
// whatever it opens.
func TestF16UnnamedMounts(t *testing.T) {
	if current.name != "runsc" {
		needs.Landlock(t, 3)
	}
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
	s.bash(t, "ln -s /data l; ln -s /data/f lf; echo /data/f >names; mkdir d; ln -s / d/root")
	for check, way := range map[string]string{
		"literal":        "cat /data/f",
		"other program":  "fold /data/f",
		"link":           "base64 -w0 lf | base64 -d",
		"unlisted":       "shuf lf",
		"xargs":          "echo /data/f | xargs cat",
		"xargs file":     "xargs cat <names",
		"dd":             "dd if=lf",
		"find":           "find -L l -type f -exec cat {} +",
		"find all":       "find -L d -maxdepth 3 -name f -path '*data*' -exec cat {} +",
		"cd":             "cd d/root && cat data/f",
		"variable":       "d=/da; cat ${d}ta/f",
		"run time":       "cat $(cat names)",
		"read":           "while read n; do cat $n; done <names",
		"for":            "for f in l/*; do cat $f; done",
		"glob":           "set -- l/*; echo $1 | sed s,l/f,secret,",
		"perl":           "perl -e 'open F, \"/da\".\"ta/f\"; print <F>'",
		"eval":           "eval \"cat /da\"\"ta/f\"",
		"proc":           "cd /proc/self/root && cat data/f",
		"proc link":      "perl -e 'open F, \"/proc/self/cwd/lf\"; print <F>'",
		"descriptor":     "exec 9<lf; cat <&9",
		"copy":           "cp lf copied; cat copied",
		"archive":        "tar chf - l | tar xOf - l/f",
		"in background":  "setsid perl -e 'open F, \"/data/f\"; print <F>' & wait",
		"program of own": "printf '#!/bin/sh\\ncat /da%s/f\\n' ta >prog; chmod +x prog; ./prog",
	} {
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

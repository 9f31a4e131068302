package shell

import (
	"slices"
	"testing"
)

// TestMeaning: what a listed command means is not changed by the name that it is given, by
// start-up files, by another home, by links on the way, or by options before git's command.
func TestMeaning(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text   string
		opaque bool
		lists  string // a command that has to be listed; "" asks for none
		writes string // where it writes; "-" that nobody knows, "" asks for none
	}{
		// The name of a program.
		{"exec -a git-init git status", true, "", ""},
		{"exec -agit-push git origin", true, "", ""},
		{"exec -ca git-push git origin", true, "", ""},
		{"exec -a \"$x\" git status", true, "", ""},
		{"exec -l git status", true, "", ""},
		{"exec -a git git status", false, "git status", ""},
		{"command exec -a x git status", true, "", ""},
		{"sh -c 'exec -a git-init git status'", true, "", ""},
		// Start-up files.
		{"exec -l bash -c ls", true, "", ""},
		{"exec -a -bash bash -c ls", true, "", ""},
		{"bash -lc ls", true, "", ""},
		{"bash --login -c ls", true, "", ""},
		{"bash +lc ls", true, "", ""},
		{"sh +l -c ls", true, "", ""},
		{"sh -l -c ls", true, "", ""},
		{"env -i bash -c ls", true, "", ""},
		{"env -u SHLVL bash -c ls </dev/tcp/h/1", true, "", ""},
		{"bash -c ls </dev/tcp/h/1", true, "", ""},
		{"{ bash -c ls; } <>/dev/udp/h/1", true, "", ""},
		{"exec 3<>/dev/tcp/h/1; bash -c ls <&3", true, "", ""},
		{"bash -c ls; exec 3<$x", true, "", ""},
		{"bash -c ls <f; bash -c ls <d/$x; cat <&3", false, "", ""},
		{"sh -c ls </dev/tcp/h/1", false, "", ""},
		{"bash -c 'cat <$x'", false, "", ""},
		{"exec <$x; sh -c 'bash -c ls'", true, "", ""},
		{"env --unset=SHLVL nice bash -c ls", true, "", ""},
		{"exec bash -c ls", true, "", ""},
		{"exec -c nice /bin/bash -c ls", true, "", ""},
		{"env bash -c ls", false, "ls", ""},
		{"env -i sh -c ls", false, "ls", ""},
		// The home.
		{`echo x > ~""/f`, false, "", "./~/f"},
		{`echo x > ~\/f`, false, "", "./~/f"},
		{`echo x > ~'/f'`, false, "", "./~/f"},
		{`echo x > "~"/f`, false, "", "./~/f"},
		{`echo x > '~/f'`, false, "", "./~/f"},
		{`echo x > ~/f`, false, "", "/home/tool/f"},
		{`echo x > ~/'f'`, false, "", "/home/tool/f"},
		{`echo x > ~"$x"/f`, false, "", "-"},
		{`sh -c 'echo x > ~""/f'`, false, "", "./~/f"},
		{"env -i sh -c 'echo x > ~/f'", false, "", "-"},
		{"env -u HOME sh -c 'echo x > ~/f'", false, "", "-"},
		{"exec -c sh -c 'echo x > ~/f'", false, "", "-"},
		{"env -i nice sh -c 'cd; echo x > f'", false, "", "-"},
		{"env -i echo x > ~/f", false, "", "/home/tool/f"},
		{"env sh -c 'echo x > ~/f'", false, "", "/home/tool/f"},
		// Links on the way.
		{"cd link/../inner; echo x > f", false, "", "-"},
		{"cd link; cd ../inner; echo x > f", false, "", "-"},
		{"cd /w/link/../inner && echo x > f", false, "", "-"},
		{"cd d/e && cd .. && echo x > f", false, "", "d/f"},
		{"cd d/.. && echo x > f", false, "", "f"},
		{"cd ../d && echo x > f", false, "", "../d/f"},
		// Options before git's command, and git's own programs.
		{"git --shallow-file x push", false, "git push", ""},
		{"git --new-option x push", false, "git push", ""},
		{"git --new-option push", false, "git push", ""},
		{"git --no-pager --new-option -C d push", false, "git push", ""},
		{"/usr/lib/git-core/git-push origin", false, "git push origin", ""},
		{"/usr/lib/git-core/git- push", false, "git- push", ""},
		{"/usr/libexec/git-core/../git-core/git-push origin", false, "git push origin", ""},
		{"/usr/lib/git-core/git push origin", false, "git push origin", ""},
	} {
		r := Scan(tt.text, Options{Home: "/home/tool"})
		if r.Opaque != tt.opaque {
			t.Errorf("%s: opaque %v (%s)", tt.text, r.Opaque, r.Why)
		}
		if tt.lists != "" && !slices.ContainsFunc(r.Commands, func(c Command) bool { return c.Text == tt.lists }) {
			t.Errorf("%s: no %q in %+v", tt.text, tt.lists, r.Commands)
		}
		switch {
		case tt.writes == "":
		case tt.writes == "-" && slices.ContainsFunc(r.Writes, func(p Path) bool { return p.Name == "" }):
		case slices.ContainsFunc(r.Writes, func(p Path) bool { return p.Name == tt.writes }) && len(r.Writes) == 1:
		default:
			t.Errorf("%s writes %+v, want %s", tt.text, r.Writes, tt.writes)
		}
		// A shell or env before it makes nothing of it known that was not.
		for _, outer := range []string{"bash -c ", "sh -c ", "env bash -c "} {
			in := Scan(outer+quoted(tt.text), Options{Home: "/home/tool"})
			if r.Opaque && !in.Opaque || !slices.EqualFunc(in.Writes, r.Writes, func(a, b Path) bool { return a.Name == b.Name }) && outer != "sh -c " {
				t.Errorf("%s%s: %+v, without %+v", outer, tt.text, in, r)
			}
		}
	}
}

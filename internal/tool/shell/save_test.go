package shell

import (
	"slices"
	"strings"
	"testing"
)

// runners are commands that run a program, a script or a library which their
// arguments name, by Debian's manuals.
const runners = `
ansible, ansible-playbook, ar, as, at, autossh, awk, bash, batch, bc, bind, busybox, bwrap, c++, cc, ccache, cgexec,
chpst, chroot, chrt, clang, coproc, cpio, cpp, cpulimit, crontab, csh, ctest, curl, daemonize,
dash, dbus-launch, dbus-run-session, dc, diff3, distcc, doas, doxygen, dpkg, dpkg-buildpackage, dvtm,
eatmydata, ed, elvish, emacs, entr, env, eslint, eval, ex, exec, expect, export, faketime, fakechroot, fakeroot, fd,
fdfind, find, firejail, fish, flock, ftp, g++, gawk, gcc, gdb, gnuplot, gosu, gradle, groovy, guile, helm, hg,
hyperfine, ifup, ionice, irb, java, jest, jj, julia, just, kak, kexec, ld, ld.so, less, lftp, libtool, linux32,
linux64, lldb, logrotate, logsave, ltrace, lua, luajit, lxc-attach, lynx, m4, make, gmake, man, mawk, mc, meson, mkfs,
mksh, mosh, mount, mpirun, msgexec, msgfilter, msgmerge, multitime, mutt, mvn, mypy, nano, nawk, nc, ncat, netcat,
newgrp, nice, ninja, nm, nmap, node, nodejs, nohup, npx, nsenter, numactl, nvim, ocaml, parallel, patch, perl, php,
pipx, pkexec, prettier, prlimit, proot, pry, psql, pwsh, pypy, pypy3, python, python2, python3, python3.12,
qemu-x86_64, r2, rake, ranlib, rbash, read, reptyr, rg, rlwrap, rsync, ruby, run-mailcap, run-one, run-parts, runcon,
runuser, rustc, scala, schedtool, scp, screen, script, sdiff, sed, setarch, i386, x86_64, setpriv,
setsid, setuidgid, sftp, sg, sh, shopt, slirp4netns, socat, softlimit, sort, source, split, sqlite3, ssh, ssh-agent,
ssh-keygen, sshpass, start-stop-daemon, stdbuf, strace, strip, su, sudo, svn, systemctl, systemd-inhibit,
systemd-nspawn, systemd-run, tar, taskset, tclsh, tcsh, telnet, terraform, time, timeout, tini, tmux, top,
toybox, trap, trickle, tsocks, torsocks, ts-node, tsx, uftrace, unbuffer, unshare, uvx, valgrind, vi, view, vim,
vimdiff, vite, vitest, w3m, watch, wget, wish, with-lock-ex, xargs, xdg-open, xelatex, xinit, xonsh, xvfb-run, yq,
zgrep, zip, zless, zmore, zsh, asciinema rec -c, buildah run, bundle exec, cargo bench, cargo install, cargo metadata,
cargo run, cargo tree, cmake -E env, cmake -P, composer exec, conda run, deno run, dlv exec, docker exec, docker run,
docker compose exec, docker compose run, flatpak run, gem install, gh alias set, gh extension exec, gh repo clone,
git archive, git bisect run, git bisect replay, git bisect visualize, git clone, git config alias.x,
git config core.pager, git difftool, git fetch, git filter-branch, git grep, git init, git ls-remote,
git mergetool, git pull, git push, git rebase, git remote update, git send-email, git submodule foreach,
git submodule update, go generate, go get, go install, go list, go run, go tool, hatch run, ip netns exec,
kubectl cp, kubectl debug, kubectl exec, kubectl get, kubectl run, mix run, nix run, npm exec, npm explore, npm init,
npm install, npm i, openssl engine, openssl req, perf record, perf stat, pip install, pip list, pip3 install,
pipenv run, pnpm dlx, pnpm exec, poetry run, pdm run, podman exec, podman run, restic backup, rustup run, snap run,
uv run, uv pip, yarn dlx, yarn run
`

// TestNoneSavedForRunners: a pattern for what runs other programs would be one for
// every program. The line itself, and nothing else, may be saved.
func TestNoneSavedForRunners(t *testing.T) {
	for kind := range strings.SplitSeq(strings.TrimSpace(runners), ",") {
		kind = strings.TrimSpace(kind)
		name, _, _ := strings.Cut(kind, " ")
		for _, rest := range []string{"", " x", " touch FLAG", " -x touch FLAG", " -- touch FLAG", " x touch FLAG", " 1 x 2 touch FLAG"} {
			for _, before := range []string{"", "/usr/bin/", "CI=1 ", "x; ", "nice "} {
				text := before + kind + rest
				for _, c := range Scan(text, Options{Home: "/home/tool"}).Commands {
					if first, _, _ := strings.Cut(c.Text, " "); c.Save != "" && c.Save != c.Text && systemName(first) == name {
						t.Errorf("%q: offers %q", text, c.Save)
					}
				}
			}
		}
	}
}

// TestLinesAreSaved: a line of no known kind may be saved as it is, unless what it runs is not in it.
func TestLinesAreSaved(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"make test": "make test", "[ -f x ]": "[ -f x ]", "exit 0": "exit 0", "git push origin main": "git push origin main",
		"./build.sh -v >out 2>&1": "./build.sh -v >out 2>&1", "CI=true make test": "make test", "CI=true npm test -- x": "npm test *",
		"make $x": "", "make *": "", "make 't?'": "", "FOO=1 make": "", "make -f -": "", "make -f /dev/stdin": "", "x <in": "", "x <<<a": "", "x <<A\na\nA\n": "",
		"bash": "", "python3": "", "python3 -i": "", "node": "", "xargs x": "", "nice": "", "uv run x.py": "uv run x.py", "deno run x.ts": "deno run x.ts", "./venv/bin/python x.py": "", "python3.12 x.py": "",
		// What would obey its input is saved without any (see Apart).
		"ssh h": "ssh h", "psql db": "psql db", "docker exec -i a sh": "docker exec -i a sh", "bc": "bc", "psql db <f": "", "make " + strings.Repeat("x", maxExact): "",
	} {
		var got string
		for _, c := range Scan(text, Options{Home: "/home/tool"}).Commands {
			got = c.Save
		}
		if got != want {
			t.Errorf("%.80q: saves %q, want %q", text, got, want)
		}
	}
}

// TestNoneSavedForWorktrees: what takes linked worktrees away is asked about each time.
func TestNoneSavedForWorktrees(t *testing.T) {
	for _, text := range []string{"git worktree prune", "git -C x worktree prune -v", "git worktree remove ../x", "git worktree remove -f -f ../x"} {
		for _, c := range Scan(text, Options{Home: "/home/tool"}).Commands {
			if c.Save != "" {
				t.Errorf("%q: offers %q", text, c.Save)
			}
		}
	}
}

// TestSavedKinds: each kind has as many words as say what kind of command it is,
// and is offered.
func TestSavedKinds(t *testing.T) {
	for kind := range saved {
		kind = strings.ReplaceAll(kind, "…", "x")
		want := kind + " *"
		if destroys[kind] {
			want = kind + " a"
		}
		r := Scan(kind+" a", Options{Home: "/home/tool"})
		if len(r.Commands) != 1 || r.Commands[0].Save != want {
			t.Errorf("%q: %+v", kind, r.Commands)
		}
	}
	for kind := range destroys {
		if !saved[kind] {
			t.Errorf("%q is not saved at all", kind)
		}
	}
}

// TestDestroyersAreSavedExactly: what is saved of a command that destroys allows that command
// alone; where no pattern says just that, nothing is saved.
func TestDestroyersAreSavedExactly(t *testing.T) {
	for text, want := range map[string][]string{
		"git status; rm -rf ./tmp":            {"git status *", "rm -rf ./tmp"},
		`/bin/rm  -r "tmp"`:                   {"", "rm -r tmp"},
		"rm -rf tmp 2>/dev/null":              {"rm -rf tmp 2>/dev/null"},
		"rm *.o":                              {""},
		"rm $x":                               {""},
		"rm 'a*'":                             {""},
		"timeout 5 git reset --hard HEAD~1":   {"", "git reset --hard HEAD~1"},
		"git -C x reset --hard":               {"", ""},
		"xargs rm -f <in":                     {"", ""},
		"rm " + strings.Repeat("x", maxExact): {""},
	} {
		var got []string
		for _, c := range Scan(text, Options{Home: "/home/tool"}).Commands {
			got = append(got, c.Save)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.80q: saves %q, want %q", text, got, want)
		}
	}
}

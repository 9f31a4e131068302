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

// classes has every kind of command that can be offered, with the reason why any arguments of it may
// be saved, or why they may not. A new kind must be put in one of them.
var classes = []struct {
	destroys   bool
	why, kinds string
}{
	{false, "it is of the shell, or says something; what its output overwrites is judged as an edit", ": cd echo false popd printf pushd pwd test true type umask wait yes sleep seq"},
	{false, "it reads, and has neither option nor operand that names a file to write", "base32 base64 basename b2sum bzcat cat cksum cmp column comm cut df diff dirname du egrep expand fgrep fmt fold grep head hexdump join jq " +
		"ls md5sum nl od paste readelf readlink realpath rev sha1sum sha224sum sha256sum sha384sum sha512sum stat strings sum tac tail tr tsort unexpand wc xzcat zcat"},
	{false, "it makes what is not there, and fails or changes nothing but the time where it is", "link mkdir mkfifo mktemp touch"},
	{false, "it says something about the system; what it could set needs rights that no tool has", "arch cal date expr factor free groups hostname id nproc numfmt pgrep printenv ps tty uname uptime users whereis which who whoami"},
	{false, "it reads the repository; what --output names is judged as an edit", "git annotate|git blame|git cat-file|git check-ignore|git count-objects|git describe|git diff|git diff-tree|git for-each-ref|" +
		"git fsck|git log|git ls-files|git ls-tree|git merge-base|git rev-list|git rev-parse|git shortlog|git show|git show-ref|git status|git version|git bisect log|git notes list|git notes show|git stash list|git stash show|git worktree list"},
	{false, "it adds to the repository, where all that was before stays", "git add|git commit|git hash-object|git notes add|git notes append|git stash push"},
	{false, "it changes the worktree where that has no changes that would be lost, and refuses elsewhere", "git bisect bad|git bisect good|git bisect new|git bisect old|git bisect skip|git stash apply"},
	{false, "it says, or creates, on the server", "gh issue create|gh issue list|gh issue view|gh pr checks|gh pr create|gh pr diff|gh pr list|gh pr status|gh pr view|gh run list|gh run view|gh run watch"},
	{false, "it runs what the project says, which may do anything by itself, so that no option adds to that", "cargo build|cargo check|cargo clippy|cargo doc|cargo test|dotnet build|dotnet test|go build|go test|npm run …|npm test|pnpm run …|pnpm test|pytest|yarn build|yarn lint|yarn test|docker compose build"},
	{false, "it changes how sources are laid out, and not what they say", "black|cargo fmt|go fmt|goimports"},
	{false, "it says something about sources and modules, or fetches modules that the sources name", "go doc|go mod download|go mod graph|go mod tidy|go mod verify|go mod why|go version|go vet|npm ls|shellcheck|staticcheck"},
	{false, "it says something of containers", "docker compose logs|docker compose ps|docker images|docker info|docker inspect|docker logs|docker ps|docker version"},

	{true, "it removes files, or what is in them", "rm rmdir shred truncate unlink dd"},
	{true, "it overwrites the file that an operand or option names", "cp ln mv shuf tee tree tsc uniq unzip xxd zstd file"},
	{true, "it removes the file that it has packed or unpacked", "gzip gunzip xz"},
	{true, "it takes rights away, and what they were is not on record", "chgrp chmod chown"},
	{true, "it ends or replaces what runs", "kill|pkill|docker compose down|docker compose restart|docker compose stop|docker compose up"},
	{true, "it removes or overwrites files of the worktree that may be in no commit", "git apply|git checkout|git clean|git mv|git reset|git restore|git rm|git switch|git format-patch|npm ci"},
	{true, "its --abort or --skip resets the worktree", "git cherry-pick|git merge|git revert"},
	{true, "it removes names, logs or objects of the repository, or moves them", "git bisect reset|git bisect start|git branch|git gc|git notes remove|git reflog|git stash clear|git stash drop|git stash pop|git symbolic-ref|git tag|git worktree add"},
	{true, "it has an option that takes back what was said on the server", "gh issue comment|gh pr comment"},
	{true, "it rewrites what sources or go.mod say, or removes a directory that an option names", "gofmt|go mod edit|go mod vendor|ruff"},
}

// TestKindsThatDestroy: each kind that can be offered is in one class, and saved as that says.
func TestKindsThatDestroy(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, class := range classes {
		split := strings.Fields
		if strings.Contains(class.kinds, "|") {
			split = func(s string) []string { return strings.Split(s, "|") }
		}
		for _, kind := range split(class.kinds) {
			if !saved[kind] || seen[kind] {
				t.Errorf("%q is not saved, or stands in two classes", kind)
			}
			if seen[kind] = true; destroys[kind] != class.destroys {
				t.Errorf("%q is saved as one that destroys: %v; but %s", kind, destroys[kind], class.why)
			}
		}
	}
	for kind := range saved {
		if !seen[kind] {
			t.Errorf("%q can be offered, and stands in no class: say why any arguments of it may be saved, or why not", kind)
		}
	}
	for _, text := range []string{
		"git checkout .", "git branch -D x", "git branch", "git tag -d x", "git switch --discard-changes x", "git stash pop", "git symbolic-ref -d x", "mv a b", "cp a b", "ln -sf a b", "unzip -o x.zip", "tee f", "gzip f",
		"xz f", "zstd --rm f", "uniq a b", "shuf -o f", "docker compose stop", "docker compose up -d", "git merge --abort", "git format-patch HEAD~3", "go mod vendor -o d", "git worktree add -B main d",
	} {
		if r := Scan(text, Options{}); r.Commands[0].Save != text {
			t.Errorf("%q: offers %q", text, r.Commands[0].Save)
		}
	}
}

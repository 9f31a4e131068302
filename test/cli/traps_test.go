package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// trap is what an agent leaves in a repository for programs of the host. Where a shell
// runs it, $FIRE touches a file on the host and one in the session: there is only one of
// the two where it fires.
type trap struct {
	name string
	// plant is what the task does in the session.
	plant string
	// spring makes the trap fire; it runs in a session only. "" is a trap for
	// programs that are not here.
	spring string
	// instead: it takes the place of .git, in which the user has worked since.
	instead bool
	// warned are the files that the warning must name. A patch has none of git's own.
	warned []string
}

const status = "git status"

var traps = []trap{
	{name: "hook", plant: `printf '#!/bin/sh\n%s\n' "$FIRE" >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit`, spring: "git commit --allow-empty -m x", warned: []string{".git/hooks/pre-commit"}},
	{name: "fsmonitor", plant: `git config core.fsmonitor "$FIRE; false"`, spring: status, warned: []string{".git/config"}},
	{name: "hooksPath", plant: `mkdir .h; printf '#!/bin/sh\n%s\n' "$FIRE" >.h/pre-commit; chmod +x .h/pre-commit; git config core.hooksPath .h`, spring: "git commit --allow-empty -m x", warned: []string{".git/config"}},
	{name: "sshCommand", plant: `git config core.sshCommand "$FIRE; false"`, spring: "git ls-remote ssh://host/x", warned: []string{".git/config"}},
	{name: "pager", plant: `git config core.pager "$FIRE; cat"`, spring: "script -qec 'git log' /dev/null", warned: []string{".git/config"}},
	{name: "editor", plant: `git config core.editor "$FIRE; false"`, spring: "git commit --allow-empty", warned: []string{".git/config"}},
	{name: "alias", plant: `git config alias.st "!$FIRE"`, spring: "git st", warned: []string{".git/config"}},
	{name: "filter clean", plant: `git config filter.f.clean "$FIRE; cat"; echo '* filter=f' >.gitattributes`, spring: "echo x >x; git add x", warned: []string{".git/config", ".gitattributes"}},
	{name: "filter smudge", plant: `git config filter.f.smudge "$FIRE; cat"; echo '* filter=f' >.gitattributes`, spring: "rm file; git checkout -- file", warned: []string{".git/config", ".gitattributes"}},
	{name: "filter process", plant: `git config filter.f.process "$FIRE; cat"; echo '* filter=f' >.gitattributes`, spring: "echo x >x; git add x", warned: []string{".git/config"}},
	{name: "diff command, attributes of git's", plant: `git config diff.d.command "$FIRE; true"; echo '* diff=d' >.git/info/attributes`, spring: "echo x >>file; git diff", warned: []string{".git/config", ".git/info/attributes"}},
	{name: "textconv", plant: `git config diff.d.textconv "$FIRE; cat"; echo '* diff=d' >.gitattributes`, spring: "echo x >>file; git diff", warned: []string{".git/config", ".gitattributes"}},
	{name: "merge driver", plant: `git config merge.m.driver "$FIRE; true"; echo '* merge=m' >.gitattributes`, spring: `
		git add -A; git commit -qm base; git checkout -qb one; echo one >file; git commit -qam one
		git checkout -qb two one^; echo two >file; git commit -qam two; git merge one`, warned: []string{".git/config", ".gitattributes"}},
	{name: "gpg.program", plant: `printf '#!/bin/sh\n%s\n' "$FIRE" >sign; chmod +x sign; git config gpg.program ./sign; git config commit.gpgsign true`, spring: "git commit --allow-empty -m x", warned: []string{".git/config"}},
	{name: "credential helper", plant: `git config credential.helper "!$FIRE"`, spring: `printf 'protocol=https\nhost=h\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill`, warned: []string{".git/config"}},
	{name: "include", plant: `printf '[core]\n\tfsmonitor = "%s; false"\n' "$FIRE" >.inc; git config include.path ../.inc`, spring: status, warned: []string{".git/config"}},
	{name: "config of a worktree", plant: `git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "$FIRE; false"`, spring: status, warned: []string{".git/config", ".git/config.worktree"}},
	{name: "submodule", plant: `
		git init -q lib; git -C lib commit -q --allow-empty -m x; git add lib
		mkdir .git/modules; mv lib/.git .git/modules/lib; echo 'gitdir: ../.git/modules/lib' >lib/.git
		git config -f .gitmodules submodule.lib.path lib; git config -f .gitmodules submodule.lib.url ./lib
		git config -f .git/modules/lib/config core.worktree ../../../lib
		git config -f .git/modules/lib/config core.fsmonitor "$FIRE; false"`, spring: status, warned: []string{".gitmodules", ".git/modules/lib/config", "lib/.git"}},
	{name: "embedded bare repository", plant: `
		git init -q --bare sub; git -C sub config core.bare false; git -C sub config core.worktree .
		git -C sub config core.fsmonitor "$FIRE; false"`, spring: "cd sub; git status", warned: []string{"sub"}},
	{name: "pointer", plant: `cp -r .git .other; git config -f .other/config core.fsmonitor "$FIRE; false"; rm -rf .git; echo 'gitdir: .other' >.git`, spring: status, instead: true, warned: []string{".git"}},
	{name: "commondir", plant: `cp -r .git .other; git config -f .other/config core.fsmonitor "$FIRE; false"; echo ../.other >.git/commondir`, spring: status, warned: []string{".git/commondir"}},
	{name: "pointer that is a link", plant: `cp -r .git .other; git config -f .other/config core.fsmonitor "$FIRE; false"; rm -rf .git; ln -s .other .git`, spring: status, instead: true, warned: []string{".git"}},
	{name: "repository below", plant: `git init -q sub; git -C sub config core.fsmonitor "$FIRE; false"`, spring: "cd sub; git status", warned: []string{"sub/.git/config"}},
	{name: "hook of the index", plant: `printf '#!/bin/sh\n%s\n' "$FIRE" >.git/hooks/post-index-change; chmod +x .git/hooks/post-index-change`, spring: "touch file; git status", warned: []string{".git/hooks/post-index-change"}},
	{name: "diff.external", plant: `git config diff.external "$FIRE; true"`, spring: "echo x >>file; git diff", warned: []string{".git/config"}},
	{name: "askPass", plant: `printf '#!/bin/sh\n%s\n' "$FIRE" >ask; chmod +x ask; git config core.askPass ./ask`, spring: `printf 'protocol=https\nhost=h\n\n' | git credential fill`, warned: []string{".git/config"}},
	{name: "uploadpack", plant: `git config remote.origin.url .; git config remote.origin.uploadpack "$FIRE; git-upload-pack"`, spring: "git fetch", warned: []string{".git/config"}},
	// It says where objects are, and starts nothing: there is nothing to spring.
	{name: "alternates", plant: `mkdir -p .o/pack; echo ../../.o >.git/objects/info/alternates; git add task.sh`},
	{name: "direnv", plant: `echo "$FIRE" >.envrc`, spring: ". ./.envrc", warned: []string{".envrc"}},
	{name: "editors and CI", plant: `mkdir -p .vscode .github/workflows; echo {} >.vscode/tasks.json; echo >.github/workflows/x.yml; echo >Makefile`, warned: []string{".vscode/tasks.json", ".github/workflows/x.yml", "Makefile"}},
}

// ofGit reports whether a file belongs to a repository itself.
func ofGit(name string) bool { return slices.Contains(strings.Split(name, "/"), ".git") }

// warns reports whether toolctl has named a file.
func warns(stderr, name string) bool {
	return slices.ContainsFunc(strings.Split(stderr, "\n"), func(l string) bool {
		return strings.TrimSpace(strings.TrimPrefix(l, "toolctl:")) == name || strings.Contains(l, "you build: "+name)
	})
}

// safe fails where a trap has fired on the host.
func (j *job) safe(after string) {
	j.t.Helper()
	if _, err := os.Lstat(j.canary + "/fired"); !errors.Is(err, fs.ErrNotExist) {
		j.t.Fatalf("the trap has fired on the host after %s (%v)", after, err)
	}
}

// looks are what a user does with the changes of a session, and with git, in the checkout
// that the session worked over.
var looks = []string{
	"toolctl diff $TRAP >../temp/patch; toolctl diff $TRAP .git --stat >/dev/null; toolctl diff $TRAP .git >/dev/null; toolctl diff $TRAP --stat; toolctl diff $TRAP -o json >/dev/null",
	"toolctl apply $TRAP --dry-run >/dev/null; toolctl apply $TRAP -o json >../temp/applied; toolctl session rm $TRAP",
	"git status; git diff; git log -p -1; git diff --stat HEAD; GIT_PAGER= PAGER=cat script -qec 'git log' /dev/null",
	"find . -name .git -prune -o -type d -print | while read -r dir; do git -C \"$dir\" status --short; done",
	"git apply --stat ../temp/patch; git add result; git commit -qm result; git stash -u; git ls-files -s",
}

// A session that works beside its source can plant what it likes: nothing of it fires on
// the host, whatever its user does with toolctl and git, until it is applied by a flag of its
// own. Then it would: in a session, where nobody is hurt, it does.
func TestTraps(t *testing.T) {
	r := newRunner(t)
	for _, task := range traps {
		t.Run(task.name, func(t *testing.T) {
			r := &runner{rig: r.rig, t: t, work: r.work}
			j := r.newJob(task)
			if _, exit := j.run(j.checkout, "toolctl session create --worktree . --mode overlay >../temp/session; toolctl exec $(cat ../temp/session) -- ./task.sh"); exit != 0 {
				t.Fatal("the trap was not planted")
			}
			session, err := os.ReadFile(j.temp + "/session")
			if err != nil {
				t.Fatal(err)
			}
			id := "TRAP=" + string(bytes.TrimSpace(session))
			defer j.run(j.temp, "toolctl session rm $TRAP --discard", id)
			git := snapshot(t, j.checkout+"/.git")
			for i, script := range looks {
				if _, exit := j.run(j.checkout, script, id); exit != 0 {
					t.Errorf("exit %d of %s", exit, script)
				}
				j.safe(script)
				if i == 1 {
					j.applied(task, git)
				}
			}
			if task.spring != "" {
				j.spring(task, id)
			}
		})
	}
}

// applied checks what an apply without more has written: the task's work, and nothing of
// the repository.
func (j *job) applied(task trap, git map[string]string) {
	j.t.Helper()
	if text, err := os.ReadFile(j.checkout + "/result"); err != nil || string(text) != "done\n" {
		j.t.Errorf("result: %q, %v", text, err)
	}
	after := snapshot(j.t, j.checkout+"/.git")
	for _, name := range sortedKeys(git, after) {
		if git[name] != after[name] {
			j.t.Errorf("the repository's %s is another", name)
		}
	}
	text, err := os.ReadFile(j.temp + "/applied")
	var done client.Applied
	if err = errors.Join(err, json.Unmarshal(text, &done)); err != nil {
		j.t.Fatal(err)
	}
	for _, name := range task.warned {
		in := func(p string) bool { return p == name || strings.HasPrefix(p, name+"/") }
		if !slices.ContainsFunc(done.Sensitive, in) && !slices.Contains(done.Build, name) {
			j.t.Errorf("it is not said that %s was left out: %q", name, done.Sensitive)
		}
	}
}

// spring puts a trap into its place, and runs into it in a session.
func (j *job) spring(task trap, id string) {
	j.t.Helper()
	live := "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\nrm -f fired\n(" + task.spring + ")\ntest -e /workspace/fired"
	away := ""
	if task.instead {
		away = "toolctl apply $TRAP --include-sensitive --force && exit 1; mv .git ../temp/was; "
	}
	if _, exit := j.run(j.checkout, away+`toolctl apply $TRAP --include-sensitive --force; toolctl run --worktree . -- bash -c "$LIVE"`, "LIVE="+live, id); exit != 0 {
		j.t.Error("the trap does not fire in a session either: it is none")
	}
	j.safe("a session that reaches the host's file: the test is none")
}

// A session that writes to its source itself names what it has left for programs of the
// host.
func TestTrapsInPlace(t *testing.T) {
	r := newRunner(t)
	for _, task := range traps {
		t.Run(task.name, func(t *testing.T) {
			r := &runner{rig: r.rig, t: t, work: r.work}
			j := r.newJob(task)
			stderr, exit := j.run(j.checkout, "toolctl run --worktree . -- ./task.sh")
			if exit != 0 {
				t.Errorf("exit %d", exit)
			}
			for _, name := range task.warned {
				if !warns(stderr, name) {
					t.Errorf("no warning names %s", name)
				}
			}
			j.safe("a session")
		})
	}
}

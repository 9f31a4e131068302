package shell

import (
	"slices"
	"strings"
)

// savePattern is the pattern that an approval for always would save for k: the
// words that say what kind of command it is, and any arguments (but see destroys). There is one only
// for commands of which no argument is a program that they run: a pattern for
// "nice" would be one for everything.
func savePattern(k *call) string {
	if k.assigns || k.more {
		return ""
	}
	words := []string{k.name}
	for n := 1; n < arity(words); n++ {
		if n >= len(k.args) || !k.args[n].fixed || !needsNoQuotes(k.args[n].value) || strings.HasPrefix(k.args[n].value, "-") {
			return ""
		}
		words = append(words, k.args[n].value)
	}
	kind := strings.Join(words, " ")
	if !saved[kind] && (len(words) == 1 || !saved[strings.Join(words[:len(words)-1], " ")+" …"]) {
		return ""
	}
	return kind + " *"
}

// arity is how many words say what kind of command one is that begins with
// words: "git checkout" is two, "npm run dev" three.
func arity(words []string) int {
	first, known := arities[words[0]]
	if !known {
		return 1
	}
	for n := len(words); n > 1; n-- {
		if a, ok := arities[strings.Join(words[:n], " ")]; ok {
			return a
		}
	}
	return first
}

// unknownKind is the index of the first word of those that say what kind of
// command k is that is only known at run time; 0 if there is none. What comes behind an option is
// judged with the readings of that.
func unknownKind(k *call) int {
	words := []string{k.name}
	for n := 1; n < arity(words) && n < len(k.args); n++ {
		w := k.args[n]
		if strings.HasPrefix(w.value, "-") {
			break
		}
		if !w.fixed {
			return n
		}
		words = append(words, w.value)
	}
	return 0
}

// looseKind notes that w, a word of k up to the last of its kind, may be any words.
func (f *findings) looseKind(k *call, w word) {
	f.opaque("which %s command it is, behind %s, is only known at run time", k.name, shorten(w.text))
}

// openKind reports whether words that are added to k can say what kind of command
// it is.
func openKind(k *call) bool {
	words := []string{k.name}
	rest := k.args[1:]
	switch n := leadingOptions(k); len(n) {
	case 0:
	case 1:
		rest = k.args[1+n[0]:]
	default:
		return true
	}
	for n := 0; n+1 < arity(words); n++ {
		if n >= len(rest) || strings.HasPrefix(rest[n].value, "-") {
			return true
		}
		words = append(words, rest[n].value)
	}
	return false
}

// leadingOptions are the numbers of words that may stand between git and its command, that
// say where or how to run it and not what. Where it is not known whether an option
// has the next word as its value, there are two; none where there is no option.
func leadingOptions(k *call) []int {
	if k.name != "git" || len(k.args) < 2 || !strings.HasPrefix(k.args[1].value, "-") {
		return nil
	}
	var ends []int
	for at := []int{0}; len(at) > 0 && len(ends) < maxReadings; at = at[1:] {
		n := at[0]
		if n == len(k.args)-1 || !strings.HasPrefix(k.args[n+1].value, "-") {
			ends = append(ends, n)
			continue
		}
		option, known := k.args[n+1].value, k.args[n+1].fixed
		value := (!known || !strings.Contains(option, "=") && !gitAlone[option]) && n+2 < len(k.args)
		if (!value || !known || !gitValues[option]) && !slices.Contains(at, n+1) {
			at = append(at, n+1)
		}
		if value && !slices.Contains(at, n+2) {
			at = append(at, n+2)
		}
	}
	return ends
}

// maxReadings bounds the readings of one command's options.
const maxReadings = 16

// gitValues are the options before git's command that take a word of their own.
var gitValues = setOf("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source", "--list-cmds", "--shallow-file")

// gitAlone are those that take none.
var gitAlone = setOf("-p", "--paginate", "-P", "--no-pager", "--bare", "--no-replace-objects", "--literal-pathspecs", "--glob-pathspecs",
	"--noglob-pathspecs", "--icase-pathspecs", "--no-optional-locks", "--no-lazy-fetch", "--no-advice", "--html-path", "--man-path",
	"--info-path", "--exec-path", "--version", "-v", "--help", "-h")

// saved are the kinds of commands that may be saved for always; "…" stands for any
// word. To add one, read its manual: none of its options and operands may name a
// program, a library or a configuration that it runs (as sort
// --compress-program does, rg --pre, git fetch --upload-pack, pip --python, curl
// --engine). What builds and tests the project runs the project's code, and its
// name says so: those are here. "git worktree prune" and "remove" are not: they take away
// worktrees that the host has elsewhere, with their index and reflog.
var saved = setOf(
	// of the shell
	":", "cd", "echo", "false", "kill", "popd", "printf", "pushd", "pwd", "test", "true", "type", "umask", "wait",
	// on files
	"base32", "base64", "basename", "b2sum", "bzcat", "cat", "chgrp", "chmod", "chown", "cksum", "cmp", "column", "comm", "cp", "cut", "dd",
	"df", "diff", "dirname", "du", "egrep", "expand", "fgrep", "file", "fmt", "fold", "grep", "gunzip", "gzip", "head", "hexdump", "join", "jq",
	"link", "ln", "ls", "md5sum", "mkdir", "mkfifo", "mktemp", "mv", "nl", "od", "paste", "readelf", "readlink", "realpath", "rev", "rm",
	"rmdir", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "shred", "shuf", "stat", "strings", "sum", "tac", "tail", "tee",
	"touch", "tr", "tree", "truncate", "tsort", "unexpand", "uniq", "unlink", "unzip", "wc", "xxd", "xz", "xzcat", "zcat", "zstd",
	// on the system
	"arch", "cal", "date", "expr", "factor", "free", "groups", "hostname", "id", "nproc", "numfmt", "pgrep", "pkill", "printenv", "ps", "seq",
	"sleep", "tty", "uname", "uptime", "users", "whereis", "which", "who", "whoami", "yes",
	// on a repository
	"git add", "git annotate", "git apply", "git blame", "git branch", "git cat-file", "git check-ignore", "git checkout", "git cherry-pick",
	"git clean", "git commit", "git count-objects", "git describe", "git diff", "git diff-tree", "git for-each-ref", "git format-patch",
	"git fsck", "git gc", "git hash-object", "git log", "git ls-files", "git ls-tree", "git merge", "git merge-base", "git mv", "git reflog",
	"git reset", "git restore", "git rev-list", "git rev-parse", "git revert", "git rm", "git shortlog", "git show", "git show-ref",
	"git status", "git switch", "git symbolic-ref", "git tag", "git version",
	"git bisect bad", "git bisect good", "git bisect log", "git bisect new", "git bisect old", "git bisect reset", "git bisect skip", "git bisect start",
	"git notes add", "git notes append", "git notes list", "git notes remove", "git notes show",
	"git stash apply", "git stash clear", "git stash drop", "git stash list", "git stash pop", "git stash push", "git stash show",
	"git worktree add", "git worktree list",
	"gh issue comment", "gh issue create", "gh issue list", "gh issue view", "gh pr checks", "gh pr comment", "gh pr create", "gh pr diff",
	"gh pr list", "gh pr status", "gh pr view", "gh run list", "gh run view", "gh run watch",
	// on the project
	"black", "cargo build", "cargo check", "cargo clippy", "cargo doc", "cargo fmt", "cargo test", "dotnet build",
	"dotnet test", "go build", "go doc", "go fmt", "go mod download", "go mod edit", "go mod graph", "go mod tidy", "go mod vendor",
	"go mod verify", "go mod why", "go test", "go version", "go vet", "gofmt", "goimports", "npm ci", "npm ls",
	"npm run …", "npm test", "pnpm run …", "pnpm test", "pytest", "ruff", "shellcheck", "staticcheck", "tsc", "yarn build",
	"yarn lint", "yarn test",
	"docker compose build", "docker compose down", "docker compose logs", "docker compose ps", "docker compose restart", "docker compose stop",
	"docker compose up", "docker images", "docker info", "docker inspect", "docker logs", "docker ps", "docker version",
)

// destroys are those of them by which something may be gone that does not come back, or that end what
// runs, also where only some option or operand does so (git branch -D, uniq IN OUT): a pattern with
// any arguments would cover those. They are saved with their arguments: a yes to one is none to all.
// TestKindsThatDestroy has the reason for each kind, and for each that is not here.
var destroys = setOf(
	"chgrp", "chmod", "chown", "cp", "dd", "file", "gofmt", "gunzip", "gzip", "kill", "ln", "mv", "pkill", "rm", "rmdir", "ruff", "shred", "shuf",
	"tee", "tree", "truncate", "tsc", "uniq", "unlink", "unzip", "xxd", "xz", "zstd",
	"docker compose down", "docker compose restart", "docker compose stop", "docker compose up",
	"gh issue comment", "gh pr comment", "go mod edit", "go mod vendor", "npm ci",
	"git apply", "git bisect reset", "git bisect start", "git branch", "git checkout", "git cherry-pick", "git clean", "git format-patch", "git gc",
	"git merge", "git mv", "git notes remove", "git reflog", "git reset", "git restore", "git revert", "git rm", "git stash clear", "git stash drop",
	"git stash pop", "git switch", "git symbolic-ref", "git tag", "git worktree add",
)

// repeatable reports whether the line of the command k, of no kind that is known, says all that is
// run: neither is it given arguments or variables that are not in it, nor does it read commands.
func repeatable(k *call, in *interpreter) bool {
	_, wraps := wrappers[k.name]
	if k.assigns || k.more || wraps || in != nil && !in.looks && !in.runs && !in.text || evaluators[k.name] != "" || strings.Contains(k.redir, "<") {
		return false
	}
	if k.name == "git" && len(k.args) > 1 && (k.args[1].value == "worktree" || strings.HasPrefix(k.args[1].value, "-")) {
		return false // see saved
	}
	return !slices.ContainsFunc(k.args, func(w word) bool {
		return w.value == "-" || strings.HasPrefix(w.value, "/dev/") || strings.HasPrefix(w.value, "/proc/")
	})
}

// maxExact bounds a command that is saved with its arguments, in bytes.
const maxExact = 1000

// exactly is the pattern for the command k, which is text in its plain form, and no other;
// "" where there is none.
func exactly(k *call, text string) string {
	unknown := slices.ContainsFunc(k.args, func(w word) bool { return !w.fixed })
	if unknown || len(text) > maxExact || strings.ContainsAny(text, "*?") || strings.ContainsAny(k.redir, "$`") {
		return ""
	}
	return text
}

// arities are the beginnings of commands whose kind takes more words than one; of each, the first word is
// one too.
var arities = map[string]int{
	"apt": 2, "apt-get": 2, "apk": 2, "dnf": 2, "yum": 2, "brew": 2, "pacman": 2, "dpkg": 2, "systemctl": 2, "journalctl": 1,
	"git": 2, "git remote": 3, "git stash": 3, "git config": 3, "git worktree": 3, "git submodule": 3, "git bisect": 3, "git notes": 3, "git flow": 3,
	"gh": 3, "glab": 3, "hub": 2,
	"npm": 2, "npm run": 3, "npm exec": 3, "npm init": 3, "pnpm": 2, "pnpm run": 3, "pnpm exec": 3, "pnpm dlx": 3, "yarn": 2, "yarn run": 3, "yarn dlx": 3,
	"corepack": 2, "nx": 2, "turbo": 2, "lerna": 2, "vite": 2, "ng": 2, "next": 2,
	"pip": 2, "pip3": 2, "poetry": 2, "poetry run": 3, "pdm": 2, "pdm run": 3, "uv": 2, "uv run": 3, "uv pip": 3, "conda": 2, "hatch": 2, "hatch run": 3,
	"cargo": 2, "cargo run": 3, "rustup": 2, "go": 2, "go run": 3, "go tool": 3, "go mod": 3, "dotnet": 2, "mvn": 2, "gradle": 2, "swift": 2, "mix": 2, "stack": 2, "cabal": 2,
	"bundle": 2, "bundle exec": 3, "gem": 2, "rake": 2, "rails": 2, "composer": 2, "artisan": 2,
	"docker": 2, "docker compose": 3, "docker container": 3, "docker image": 3, "docker network": 3, "docker volume": 3, "docker buildx": 3, "docker system": 3,
	"podman": 2, "podman compose": 3, "docker-compose": 2, "kubectl": 2, "kubectl rollout": 3, "kubectl config": 3, "helm": 2, "helm repo": 3, "terraform": 2, "tofu": 2, "pulumi": 2, "ansible": 1,
	"aws": 3, "gcloud": 3, "az": 3, "doctl": 3, "flyctl": 2, "fly": 2, "heroku": 2, "vercel": 2, "netlify": 2, "firebase": 2,
	"openssl": 2, "bazel": 2, "cmake": 2, "nix": 2, "deno": 2, "bun": 2, "hg": 2, "svn": 2, "jj": 2, "toolctl": 2,
}

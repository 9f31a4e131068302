// Package sensitive knows by their names the files of a worktree that programs of a host
// run or obey on sight: git when it is started there, a shell with direnv, an editor, CI.
// It looks at no file. The agent links it.
package sensitive

import (
	"slices"
	"strings"
	"unicode"
)

// Kind says what a name stands for.
type Kind int

// The kinds of names.
const (
	Plain   Kind = iota
	OnSight      // run or obeyed by a program that is started beside or above it
	Build        // its commands run when somebody builds or tests
	Part         // with others beside it, it makes a repository of the directory: see Repository
)

// Files and directories that some program runs or obeys when it is started beside or
// below them: those that count wherever they are, and those that count at the top of the
// worktree. A directory stands for all that is in it.
var (
	anywhere = []string{".git", ".gitattributes", ".envrc", ".vscode", ".idea", ".devcontainer"}
	atTop    = []string{
		".gitmodules", ".githooks", ".husky", ".pre-commit-config.yaml", ".github", ".gitlab-ci.yml", ".circleci",
	}
)

var builds = []string{
	"makefile", "gnumakefile", "justfile", "taskfile.yml", "rakefile", "jenkinsfile", "vagrantfile",
	"package.json", ".npmrc", ".yarnrc.yml", "go.mod", "go.work", "cargo.toml", "build.rs", "pyproject.toml",
	"setup.py", "setup.cfg", "tox.ini", "noxfile.py", "conftest.py", "gemfile", "composer.json", "cmakelists.txt",
	"meson.build", "build.bazel", "module.bazel", "pom.xml", "build.gradle", "build.gradle.kts",
	"settings.gradle", "settings.gradle.kts", "gradlew", "mvnw", "dockerfile", "docker-compose.yml", "compose.yaml",
}

// kinds and topKinds find them: every entry of a worktree is looked up. Short names of
// NTFS are in them without the digits after "~".
var (
	kinds    = table(anywhere, builds, []string{"head", "objects", "refs", "commondir"})
	topKinds = table(atTop, nil, nil)
)

func table(onSight, build, parts []string) map[string]Kind {
	t := make(map[string]Kind)
	for _, n := range onSight {
		t[n], t[short(n)] = OnSight, OnSight
	}
	// What NTFS calls these two where their short names are taken; git knows them too.
	if slices.Contains(onSight, ".gitattributes") {
		t["gi7d29~"] = OnSight
	}
	if slices.Contains(onSight, ".gitmodules") {
		t["gi7eba~"] = OnSight
	}
	for _, n := range build {
		t[n] = Build
	}
	for _, n := range parts {
		t[n] = Part
	}
	return t
}

// short is the name that NTFS gives a file beside its long one, without the digits:
// ".gitlab-ci.yml" is "gitlab~.yml".
func short(name string) string {
	stem, ext := strings.TrimLeft(name, "."), ""
	if i := strings.LastIndexByte(stem, '.'); i >= 0 {
		stem, ext = stem[:i], stem[i:]
	}
	return stem[:min(len(stem), 6)] + "~" + ext[:min(len(ext), 4)]
}

// Top are the names to look for at the top of a worktree, as their programs spell them.
func Top() []string { return slices.Concat(anywhere, atTop) }

// Of says what a name stands for, at the top of the worktree or below. A name counts in
// every spelling that some file system takes for the same: other cases, dots and blanks
// at its end, streams and short names of NTFS, characters that HFS+ ignores.
func Of(name string, top bool) Kind {
	name = plainest(name)
	if before, after, ok := strings.Cut(name, "~"); ok {
		rest := strings.TrimLeft(after, "0123456789")
		if rest == after {
			return Plain
		}
		name = before + "~" + rest
	}
	if kind := kinds[name]; kind != Plain || !top {
		return kind
	}
	return topKinds[name]
}

// Path says what a path below the worktree is: OnSight where a name in it is, else what
// its last name is.
func Path(rel string) Kind {
	kind, top := Plain, true
	for name := range strings.SplitSeq(rel, "/") {
		if kind = Of(name, top); kind == OnSight {
			return OnSight
		}
		top = false
	}
	return kind
}

// plainest is a name as a file system would compare it that makes the fewest differences.
func plainest(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII {
			return unicode.ToLower(r)
		}
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			if f < unicode.MaxASCII {
				return unicode.ToLower(f)
			}
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	return strings.TrimRight(name, " .")
}

// Repository says whether git takes a directory for a repository, and does what its
// config says, because of the Parts that it has: by their names in lower case.
func Repository(has map[string]bool) bool {
	return has["head"] && (has["objects"] && has["refs"] || has["commondir"])
}

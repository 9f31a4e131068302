// Package sensitive knows by their names the files of a worktree that programs of a host
// run or obey on sight: git when it is started there, a shell with direnv, an editor, CI.
// It looks at no file. The agent links it.
package sensitive

import (
	"slices"
	"strings"
	"sync"
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

// onSight are files and directories that some program runs or obeys when it is started beside or
// below them, wherever they are: a tree may hold many projects, and each may be opened by itself.
// A directory stands for all that is in it. To add a program: its names here, in lower case.
var onSight = []string{
	// git and others of its kind, with what runs its hooks
	".git", ".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig", ".hg", ".svn", ".jj",
	".githooks", ".git-hooks", ".husky", ".huskyrc", ".huskyrc.json", ".huskyrc.js", ".huskyrc.yml", ".huskyrc.yaml",
	".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", "prek.toml", ".overcommit.yml",
	"lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json", "lefthook.jsonc",
	".lefthook.yml", ".lefthook.yaml", ".lefthook.toml", ".lefthook.json", ".lefthook.jsonc", ".lefthook", ".lefthook-local",
	"lefthook-local.yml", "lefthook-local.yaml", "lefthook-local.toml", "lefthook-local.json",
	".lefthook-local.yml", ".lefthook-local.yaml", ".lefthook-local.toml", ".lefthook-local.json",
	".simple-git-hooks.json", ".simple-git-hooks.js", ".simple-git-hooks.cjs", "simple-git-hooks.json", "captainhook.json", "grumphp.yml",
	".huskyrc.cjs", "hk.pkl", ".hk.pkl", ".hk-hooks", ".cargo-husky", ".rusty-hook.toml", ".trunk",
	// shells and what chooses versions of programs as one enters a directory
	".envrc", ".autoenv", ".autoenv.zsh", ".rvmrc", ".tool-versions", "mise.toml", "mise.local.toml", ".mise.toml", ".mise.local.toml",
	".autoenv.leave", ".autoenv_leave.zsh", ".shadowenv.d", ".smartcd.sh", ".bash_enter", ".bash_leave", ".sdkmanrc", ".prototools", ".proto",
	".flox", "pkgx.yaml", "pkgx.yml", ".pkgx.yaml", ".pkgx.yml", "tea.yaml", ".tea.yaml", ".bundle",
	".mise", ".rtx.toml", ".rtx", ".config", ".cargo", "rust-toolchain", "rust-toolchain.toml",
	".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".ssh",
	".kshrc", ".mkshrc", ".shrc", ".cshrc", ".tcshrc",
	// agents: hooks, servers that they start, what they may do without asking
	".mcp.json", ".claude", ".claude.json", ".codex", ".gemini", ".qwen", ".cursor", ".opencode", "opencode.json", "opencode.jsonc",
	".copilot", ".crush", "crush.json", ".crush.json", ".goose", ".aider.conf.yml", ".cline", ".clinerules", ".roo", ".roomodes",
	".kilocode", ".continue", ".windsurf", ".amp", ".augment", ".kiro", ".junie", ".factory", ".trae", ".agents",
	".agent", ".amazonq", ".antigravity", ".codebuddy", ".firebender", "firebender.json", ".grok", ".iflow", ".mux", ".openhands", ".pi", ".qodo",
	".rovodev", ".tabnine", ".vibe", ".zencoder", ".cursorrules", ".windsurfrules", ".roorules", ".goosehints", ".rules",
	".aider.conf.yaml", ".aider.model.settings.yml", ".aider.model.metadata.json", "gptme.toml", ".gptme", ".warp", ".void", ".plandex", ".plandex-v2",
	".coderabbit.yaml", ".pr_agent.toml",
	// editors and debuggers
	".vscode", ".idea", ".zed", ".fleet", ".helix", ".nvim.lua", ".nvimrc", ".exrc", ".vimrc", ".lvimrc", ".vim", ".dir-locals.el", ".dir-locals-2.el",
	".theia", ".vs", ".lazy.lua", ".nvim", ".neoconf.json", ".nlsp-settings", ".gvimrc", "_vimrc", "_gvimrc", "_exrc", ".vimspector.json", ".ycm_extra_conf.py",
	".nova", ".kateproject", ".externaltoolbuilders",
	".gdbinit", ".gdbearlyinit", ".lldbinit", ".pdbrc", ".pdbrc.py", ".perldb", ".radare2rc", ".rdbgrc", ".rdbgrc.rb", ".byebugrc", ".irbrc", ".pryrc",
	".ghci", ".ocamlinit", ".utoprc", ".rprofile", ".renviron", ".iex.exs", ".erlang", ".psysh.php", ".octaverc", "startup.m",
	"jupyter_config.py", "jupyter_config.json", "jupyter_notebook_config.py", "jupyter_notebook_config.json", "jupyter_server_config.py",
	"jupyter_server_config.json", "jupyter_lab_config.py", "ipython_config.py",
	// places where a project is opened by a click
	".devcontainer", ".devcontainer.json", ".gitpod.yml", ".gitpod.dockerfile", ".replit", ".idx", ".codesandbox",
	// CI
	".github", ".gitea", ".forgejo", ".gitlab-ci.yml", ".gitlab", ".circleci", ".travis.yml", ".drone.yml", ".woodpecker", ".woodpecker.yml",
	".woodpecker.yaml", ".buildkite", ".cirrus.yml", ".semaphore", ".teamcity", ".tekton", ".appveyor.yml", "appveyor.yml",
	"azure-pipelines.yml", "bitbucket-pipelines.yml", "buildspec.yml", "cloudbuild.yaml",
}

// onSightEnds are how the names of others end.
var onSightEnds = []string{".code-workspace", ".sublime-project"}

var builds = []string{
	"makefile", "gnumakefile", "justfile", "taskfile.yml", "rakefile", "jenkinsfile", "vagrantfile",
	"package.json", ".npmrc", ".yarnrc.yml", "go.mod", "go.work", "cargo.toml", "build.rs", "pyproject.toml",
	"setup.py", "setup.cfg", "tox.ini", "noxfile.py", "conftest.py", "gemfile", "composer.json", "cmakelists.txt",
	"meson.build", "build.bazel", "module.bazel", "pom.xml", "build.gradle", "build.gradle.kts",
	"settings.gradle", "settings.gradle.kts", "gradlew", "mvnw", "dockerfile", "docker-compose.yml", "compose.yaml",
	"docker-compose.yaml", "compose.yml", "taskfile.yaml", ".yarnrc", ".yarn", ".pnpmfile.cjs", ".pnp.cjs", "bunfig.toml", "deno.json", "deno.jsonc", ".bazelrc",
	"flake.nix", "shell.nix", "default.nix", "devbox.json", "devenv.nix", ".lintstagedrc", ".lintstagedrc.json", ".lintstagedrc.js",
	".lintstagedrc.yml", ".lintstagedrc.yaml", "tiltfile", "procfile", "uv.toml", "poetry.toml", "pdm.toml", "pixi.toml", "pnpm-workspace.yaml", ".pnpmfile.mjs", "nuget.config", "global.json",
	"sitecustomize.py", "usercustomize.py", "gradle-wrapper.properties", "gradle-wrapper.jar", "maven-wrapper.properties", "maven-wrapper.jar", ".clangd", "jvm.config", "maven.config", "extensions.xml", "gradle.properties", "build.sbt",
	"directory.build.props", "directory.build.targets", "stack.yaml", "cabal.project", "dune", "ansible.cfg", ".pylintrc", ".rubocop.yml",
}

// buildEnds are how the names of programs end that others take for their settings: of linters, bundlers
// and runners of tests, which editors start too.
var buildEnds = []string{".config.js", ".config.mjs", ".config.cjs", ".config.ts", ".config.mts", ".config.cts", "rc.js", "rc.mjs", "rc.cjs", "rc.ts"}

// kinds finds them: every entry of a worktree is looked up. Short names of NTFS are in it
// without the digits after "~".
var kinds = sync.OnceValue(func() map[string]Kind {
	// What NTFS calls two of them where their short names are taken; git knows them too.
	t := map[string]Kind{"gi7d29~": OnSight, "gi7eba~": OnSight}
	for _, n := range builds {
		t[n] = Build
	}
	for _, n := range []string{"head", "objects", "refs", "commondir"} {
		t[n] = Part
	}
	for _, n := range onSight {
		t[n], t[short(n)] = OnSight, OnSight
	}
	return t
})

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
func Top() []string { return onSight }

// Of says what a name stands for. A name counts in every spelling that some file system
// takes for the same: other cases, dots and blanks at its end, streams and short names of
// NTFS, characters that HFS+ ignores.
func Of(name string) Kind {
	name = plainest(name)
	if ends(name, onSightEnds) {
		return OnSight
	}
	if before, after, ok := strings.Cut(name, "~"); ok {
		rest := strings.TrimLeft(after, "0123456789")
		if rest == after {
			return Plain
		}
		name = before + "~" + rest
	}
	if kind := kinds()[name]; kind != Plain || !ends(name, buildEnds) {
		return kind
	}
	return Build
}

func ends(name string, with []string) bool {
	return slices.ContainsFunc(with, func(end string) bool { return strings.HasSuffix(name, end) })
}

// Path says what a path below the worktree is: OnSight where a name in it is, else what
// its last name is.
func Path(rel string) Kind {
	kind := Plain
	for name := range strings.SplitSeq(rel, "/") {
		if kind = Of(name); kind == OnSight {
			return OnSight
		}
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

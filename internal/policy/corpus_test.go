package policy

import (
	"encoding/json"
	"testing"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
)

// asked is how many of the 300 commands the built-in rules ask about.
const asked = 0

// askedReaching are the commands that the built-in rules ask about in a session with a mount to read
// and a cache that others write, with the reason.
var askedReaching = map[string]string{
	`ls $(go env GOPATH)/pkg/mod 2>/dev/null | head`:                                   "go env prints what the environment and files say",
	`cat $(go env GOROOT)/src/net/http/server.go 2>/dev/null | head -5; true`:          "go env prints what the environment and files say",
	`go list -f '{{.Dir}}' ./... | while read -r dir; do ls "$dir" | head -2; done`:    "go list -f prints what its template says",
	`python3 -m venv .venv && . .venv/bin/activate && pip install -r requirements.txt`: "the script that is read in may go anywhere",
	`find / -name 'toold*' -maxdepth 2 2>/dev/null | head -3; true`:                    "it searches what is above the mount",
	`cd web; ls; cd ..`: "where there is no web it goes above the worktree",
	`tmpdir=$(mktemp -d); trap 'rm -rf "$tmpdir"' EXIT; cp package.json "$tmpdir/"; ls "$tmpdir"`: "what a trap runs may change all",
	`cp "$(which git)" /tmp/git-copy && ls -l /tmp/git-copy`:                                      "where programs are is in PATH",
	`ls -l $(which bash)`:                                                             "where programs are is in PATH",
	`cd "${WORKSPACE:-.}" && ls`:                                                      "the variable may be in the environment",
	`ls "${GOPATH:-$HOME/go}/bin" 2>/dev/null; true`:                                  "the variable may be in the environment",
	`CONFIG=${CONFIG:-config/app.yaml}; cat "$CONFIG"`:                                "the variable may be in the environment",
	`git ls-files '*.go' | xargs wc -l | tail -1`:                                     nameMayBeMore,
	`git ls-files -z | xargs -0 grep -l TODO`:                                         nameMayBeMore,
	`cat $(git ls-files '*.go' | head -3)`:                                            nameMayBeMore,
	`wc -l $(git ls-files 'src/*.ts')`:                                                nameMayBeMore,
	`head -20 $(git diff --name-only HEAD~1)`:                                         nameMayBeMore,
	`cd "$(git rev-parse --show-toplevel)" && ls`:                                     "core.worktree may lead elsewhere",
	`ls "$(git rev-parse --show-toplevel)/src"`:                                       "core.worktree may lead elsewhere",
	`for f in $(git ls-files '*.py'); do echo "== $f"; head -3 "$f"; done`:            nameMayBeMore,
	`gofmt -w $(git ls-files '*.go')`:                                                 nameMayBeMore,
	`gofmt -l $(find . -name '*.go' -not -path './vendor/*')`:                         nameMayBeMore,
	`for pkg in $(go list ./...); do echo "testing $pkg"; go test "$pkg"; done`:       nameMayBeMore,
	`for f in *.c; do cp $f $f.bak; done; ls *.bak`:                                   nameMayBeMore,
	`for f in $(find src -name '*.ts'); do grep -n import "$f" | head -2; done`:       nameMayBeMore,
	`find . -name '*.md' | while read f; do echo "$f: $(wc -l < "$f")"; done`:         nameMayBeMore,
	`find . -name '*.go' -print0 | while IFS= read -r -d '' f; do head -1 "$f"; done`: nameMayBeMore,
	`find src -name '*.test.ts' | xargs -r grep -n 'describe'`:                        nameMayBeMore,
	`file=$(ls src/*.ts | head -1); cat "$file"`:                                      nameMayBeMore,
	`f=$(grep -rl "createServer" src | head -1); sed -n '1,20p' "$f"`:                 nameMayBeMore,
	`latest=$(ls -t logs | head -1); tail -3 "logs/$latest"`:                          nameMayBeMore,
	`ls -t /tmp/*.log | head -1 | xargs -r tail -3`:                                   nameMayBeMore,
}

const nameMayBeMore = "a file may be called \"a /mnt/x\", or have a line break in its name, which are two names then"

// TestCorpus says how many commands as agents write them the built-in rules ask about.
func TestCorpus(t *testing.T) {
	t.Parallel()
	stack, err := Default().Stack(DefaultProfile, "default")
	if err != nil {
		t.Fatal(err)
	}
	tools, commands, n, unnamed := tool.NewRegistry(), testrig.Corpus(t, "testdata/corpus"), 0, 0
	reaching := Places{Mounts: []string{"/mnt/docs"}} // and a cache that others write, below Caches
	named := make(map[string]bool)
	for _, c := range commands {
		input, err := json.Marshal(map[string]string{"command": c.Text})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := tools.Parse("bash", input)
		if err != nil {
			t.Fatal(err)
		}
		if v := stack.Judge(AsWritten(inv, nil, NoSession)); v.Action != Allow {
			n++
			t.Logf("%s: %s %q: %s\n%s", v.Action, v.Request.Permission, v.Request.Pattern, v.Request.Why, c.Text)
		}
		v := stack.Judge(AsWritten(inv, nil, reaching))
		named[c.Text] = askedReaching[c.Text] != ""
		if (v.Action != Allow) != named[c.Text] {
			unnamed++
			t.Errorf("with a mount: %s: %s %q: %s\n%s", v.Action, v.Request.Permission, v.Request.Pattern, v.Request.Why, c.Text)
		}
	}
	for text, why := range askedReaching {
		if !named[text] {
			t.Errorf("%s (%s) is no command of the corpus", text, why)
		}
	}
	if share := 100 * float64(len(askedReaching)) / float64(len(commands)); unnamed == 0 {
		t.Logf("in a session with a mount and a shared cache %.1f %% are asked about", share)
	}
	if len(commands) != 300 || n != asked {
		t.Errorf("of %d commands %d are asked about, not %d", len(commands), n, asked)
	}
}

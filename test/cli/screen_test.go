package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/hinshun/vt10x"

	"github.com/toold/toold/internal/testrig"
)

// screenRows are more than any answer here has.
const screenRows = 400

// screen is what a person sees of a command in a terminal of 80 columns: the rows of an
// emulated one, and its exit code.
func (r *rig) screen(t *testing.T, args ...string) (rows []string, sent string, exit int) {
	t.Helper()
	sent, exit = r.raw(t, 80, args...)
	v := vt10x.New(vt10x.WithSize(80, screenRows))
	if _, err := v.Write([]byte(sent)); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(v.String(), " \n"), "\n"), sent, exit
}

// brokenWords are the words that the end of a screen's row cuts in two: the row is full, the
// next goes on without a space, both are one word in what was sent, and a row has room for it.
func brokenWords(rows []string, sent string) (broken []string) {
	for i, row := range rows[:len(rows)-1] {
		full := []rune(strings.TrimRight(row, " "))
		next := strings.Fields(rows[i+1])
		if len(full) < 80 || rows[i+1] == "" || unicode.IsSpace([]rune(rows[i+1])[0]) || typed.MatchString(row) {
			continue
		}
		words := strings.Fields(row)
		if word := words[len(words)-1] + next[0]; len(word) <= 60 && strings.Contains(sent, word) {
			broken = append(broken, word)
		}
	}
	return broken
}

// shown is a command line whose answer is looked at. SESSION and the like are those of
// screenPlaces.
type shown struct {
	line string
	says string // a part of the answer; "" where any will do
}

// screenExamples has each command of toolctl that a person reads an answer of: with what there
// is to see, and where that is nothing. "-" is a command that has no answer to look at here, and why.
var screenExamples = map[string][]shown{
	"abort":                {{"abort work", ""}, {"abort nothing", "toolctl session list"}},
	"apply":                {{"apply work", ""}, {"apply over --dry-run", ""}, {"apply changed nosuch", "no such path"}},
	"approvals":            {{"approvals", "no call waits"}},
	"approvals answer":     {{"approvals answer apr_1 once", ""}},
	"approvals list":       {{"approvals list --session work", "no call waits"}},
	"approvals saved":      {{"approvals saved", "no approval is saved"}},
	"approvals saved list": {{"approvals saved list", "no approval is saved"}},
	"approvals saved rm":   {{"approvals saved rm apr_1.1", ""}},
	"approvals watch":      {{"-", "it waits for approvals; approvals_watch.txtar"}},
	"audit export":         {{"audit export --since 1ms AUDIT", ""}},
	"audit tail":           {{"audit tail AUDIT", "allow"}, {"audit tail /nosuch", ""}},
	"audit verify":         {{"audit verify AUDIT", ""}},
	"backup create":        {{"backup create BACKUP", "file"}, {"backup create /nosuch/b", "name a new file"}},
	"backup restore":       {{"backup restore BACKUP RESTORED", "start toold"}, {"backup restore BACKUP TREE", "is not empty"}},
	"cache fill":           {{"cache fill nosuch", ""}},
	"cache ls":             {{"cache ls", "nothing is kept"}},
	"cache promote":        {{"cache promote work go", ""}},
	"cache rm":             {{"cache rm go", ""}},
	"call":                 {{"call work read f", ""}, {"call work nosuch x", ""}},
	"checkpoint":           {{"checkpoint changed one", "cp_"}},
	"checkpoint ls":        {{"checkpoint ls changed", ""}, {"checkpoint ls work", ""}},
	"checkpoint rm":        {{"checkpoint rm changed nosuch", ""}},
	"completion":           {{"-", "a script for a shell; completion.txtar"}},
	"config check":         {{"config check", ""}, {"config check /nosuch", ""}},
	"config show":          {{"config show", ""}},
	"cp":                   {{"cp work:f COPY", ""}, {"cp work:nosuch COPY", ""}},
	"diff":                 {{"diff changed", ""}, {"diff changed --stat", ""}, {"diff same", "nothing differs"}, {"diff same --stat", "0 files"}, {"diff changed nosuch", "no such path"}},
	"discard":              {{"discard same", "nothing differs"}, {"discard changed nosuch", ""}},
	"doctor":               {{"doctor", ""}},
	"drain":                {{"drain --timeout 0", "left"}, {"drain --off", "begin again"}},
	"events":               {{"events", "session.created"}, {"events --type nosuch.*", ""}, {"events --session work", ""}},
	"exec":                 {{"exec work -- echo hello", "hello"}},
	"fork":                 {{"fork changed", ""}},
	"gc":                   {{"gc --dry-run", "ses_"}, {"gc", "yes"}, {"gc --dry-run", "nothing left behind"}},
	"gen-docs":             {{"-", "hidden"}},
	"image import":         {{"image import /nosuch", ""}},
	"image list":           {{"image list", "no images"}},
	"image pull":           {{"image pull -", ""}},
	"image rm":             {{"image rm nosuch", ""}},
	"mcp":                  {{"mcp --session work --print-config codex", ""}, {"mcp --doctor qwen", "install it"}, {"mcp --doctor qwen --program /nosuch", ""}, {"mcp --doctor qwen --worktree TREE", "leave --worktree out"}},
	"network learn":        {{"network learn work", "no network"}},
	"network log":          {{"network log work", "opened no connections"}},
	"policy explain":       {{"policy explain bash ls", "allow"}, {"policy explain nosuch x", ""}},
	"policy replay":        {{"policy replay /nosuch", ""}},
	"policy test":          {{"policy test", ""}},
	"ready":                {{"ready", "ok"}},
	"reload":               {{"reload", ""}},
	"restore":              {{"restore changed nosuch", ""}},
	"run":                  {{"run -- echo hello", "hello"}, {"run --worktree TREE --mode overlay -- true", "has changed nothing"}},
	"session brief":        {{"session brief work", ""}},
	"session create":       {{"session create", "ses_"}, {"session create --worktree /nosuch", ""}},
	"session list":         {{"session list --all", "over"}, {"session list --label no=such", "no session is like that"}, {"session list --state lost", ""}},
	"session logs":         {{"session logs work", ""}, {"session logs work --short", ""}, {"session logs work --tail 1", ""}, {"session logs work --since 2030-01-01", "before these"}, {"session logs same", "no calls yet"}, {"session logs same --tool edit", "no calls"}, {"session logs work call_none", ""}},
	"session report":       {{"session report work --report REPORT", "exit code 0"}, {"session report work", "--report DIR"}},
	"session rm":           {{"session rm over", ""}, {"session rm nosuch", "toolctl session list"}},
	"session set":          {{"session set same --ttl 2h", ""}, {"session set same", "--ttl, --label or --profile"}},
	"session show":         {{"session show work", ""}, {"session show nosuch", "toolctl session list"}},
	"status":               {{"status", ""}},
	"tools":                {{"tools", "bash"}, {"tools --all", ""}, {"tools --profile nosuch", ""}},
	"top":                  {{"-", "a screen of its own; top.txtar"}},
	"undo":                 {{"undo same", ""}},
	"usage":                {{"usage", "default"}},
	"version":              {{"version", ""}},
	"wait":                 {{"wait work call_none", ""}, {"wait over", ""}},
}

// commandNamed and optionNamed find what an answer says to type.
var (
	commandNamed = regexp.MustCompile(`toolctl ([a-z][-a-z]*)`)
	optionNamed  = regexp.MustCompile(`(?:^| )(--[a-z][-a-z]*)`)
)

// hasNext is how the answer of a command that refuses names what to do: a command that there is, an option that it has, a
// field, or where to look. help is that of the command.
func hasNext(text, help string) bool {
	for _, m := range commandNamed.FindAllStringSubmatch(text, -1) {
		for name := range screenExamples {
			if first, _, _ := strings.Cut(name, " "); first == m[1] {
				return true
			}
		}
	}
	for _, m := range optionNamed.FindAllStringSubmatch(text, -1) {
		if strings.Contains(help, m[1]) {
			return true
		}
	}
	return slices.ContainsFunc([]string{"write ", "did you mean", "name ", "leave ", "give ", "such as", "may use", "an admin", "toold --help", "have the session made with --limit ", "set timeout up to "}, func(sign string) bool { return strings.Contains(text, sign) })
}

// helpOf is the help of the command that arguments begin with.
func (r *rig) helpOf(t *testing.T, args []string) string {
	t.Helper()
	var command []string
	for name := range screenExamples {
		if c := strings.Fields(name); r.program == "" && len(c) > len(command) && len(args) >= len(c) && slices.Equal(c, args[:len(c)]) {
			command = c
		}
	}
	help, _ := r.raw(t, 200, append(command, "--help")...)
	return help
}

// look runs a command at a terminal of 80 columns and says what is wrong with its answer.
func (r *rig) look(t *testing.T, says string, args ...string) {
	t.Helper()
	rows, sent, exit := r.screen(t, args...)
	text := strings.ReplaceAll(strings.Join(strings.Fields(strings.Join(rows, " ")), " "), "toolctl: ", "")
	if text == "" {
		t.Errorf("%q shows nothing, and exits with %d", args, exit)
	}
	if broken := brokenWords(rows, sent); len(broken) > 0 {
		t.Errorf("%q breaks %q in\n%s", args, broken, strings.Join(rows, "\n"))
	}
	if exit != 0 && !hasNext(text, r.helpOf(t, args)) {
		t.Errorf("%q exits with %d and says nothing to do:\n%s", args, exit, strings.Join(rows, "\n"))
	}
	for _, m := range commandNamed.FindAllStringSubmatch(text, -1) {
		if exit != 0 && r.uid != 0 && slices.Contains([]string{"backup", "drain", "gc", "reload"}, m[1]) && !strings.Contains(text, "admin") {
			t.Errorf("%q names %q, which this user may not do:\n%s", args, m[0], strings.Join(rows, "\n"))
		}
	}
	if !strings.Contains(text, says) {
		t.Errorf("%q does not say %q but\n%s", args, says, strings.Join(rows, "\n"))
	}
}

// On a terminal of 80 columns no command answers with nothing, none of its words is cut by the
// end of a line, and what it refuses says what to do.
func TestScreens(t *testing.T) {
	r := newDaemon(t)
	t.Run("top of nothing", func(t *testing.T) { r.watched(t, "no session", "top") })
	t.Run("approvals watch of nothing", func(t *testing.T) { r.watched(t, "nothing waits", "approvals", "watch") })
	tree := filepath.Join(r.dir, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "a-directory-with-a-long-name"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"f": "text\n", "a-directory-with-a-long-name/and-a-file-with-a-longer-one.txt": "text\n"} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.shell(t, `
		toolctl session create --name work --worktree "$1" --label job=nightly-build-of-the-main-branch
		toolctl session create --name changed --worktree "$1" --mode overlay
		toolctl session create --name same --worktree "$1" --mode overlay
		toolctl session create --name over
		toolctl session create --name small --limit memory=100MiB --limit tmp=10MiB
		toolctl session rm over
		mkdir "$2/$(toolctl session list --all --state ended -o name)" # what it has left, as if that could not be removed
		for name in first-checkpoint second-checkpoint-whose-name-is-a-good-deal-longer; do toolctl checkpoint changed "$name"; done
		toolctl call changed write '{"file_path": "f", "content": "other\n"}'
		toolctl call changed write '{"file_path": "a-directory-with-a-long-name/another-file-with-a-long-name.txt", "content": "other\n"}'
		toolctl call work bash '{"command": "echo a line of output; seq 3 # and a command that is a good deal longer than a terminal is wide, to its end"}'
	`, tree, filepath.Join(r.dir, "state/output"))
	places := strings.NewReplacer("AUDIT", filepath.Join(r.dir, "state/audit"), "TREE", tree, "COPY", filepath.Join(r.dir, "copy"), "REPORT", filepath.Join(r.dir, "report"), "BACKUP", filepath.Join(r.dir, "backup"), "RESTORED", filepath.Join(r.dir, "restored"))
	look := func(t *testing.T, says string, args ...string) { r.look(t, says, args...) }
	seen := map[string]bool{}
	for _, command := range r.subcommands(t) {
		name := strings.Join(command, " ")
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			look(t, "", append(slices.Clone(command), "--help")...)
			look(t, "--help", append(slices.Clone(command), "--no-such-flag")...)
			examples, ok := screenExamples[name]
			if help := r.toolctl(t, append(slices.Clone(command), "--help")...); !ok && !strings.Contains(help, "Available Commands") {
				t.Error("no example of it is here")
			}
			for _, x := range examples {
				if x.line != "-" {
					look(t, x.says, strings.Fields(places.Replace(x.line))...)
				}
			}
			if help := r.toolctl(t, append(slices.Clone(command), "--help")...); name != "" && strings.Contains(help, name+" SESSION") {
				look(t, "no SESSION", command...)
			}
		})
	}
	for name := range screenExamples {
		if !seen[name] && name != "gen-docs" {
			t.Errorf("there is no command %q", name)
		}
	}
	t.Run("no command", func(t *testing.T) { look(t, "Available Commands") })
	t.Run("no daemon", func(t *testing.T) {
		none := *r
		none.socket = filepath.Join(r.dir, "none.sock")
		for _, line := range []string{"status", "session list", "call work bash ls", "approvals watch", "top"} {
			none.look(t, "", strings.Fields(line)...)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		look(t, "timed out", "call", "work", "bash", `{"command": "sleep 100", "timeout": 100}`)
	})
	t.Run("conflict", func(t *testing.T) {
		testrig.Must(t, os.WriteFile(filepath.Join(tree, "f"), []byte("somebody else's\n"), 0o644))
		look(t, "it was changed since the session began", "apply", "changed")
	})
	t.Run("top", func(t *testing.T) { r.watched(t, "work", "top") })
	t.Run("memory", func(t *testing.T) {
		look(t, "of memory", "exec", "small", "--", "bash", "-c", "head -c 500M /dev/zero | tail")
	})
	t.Run("full disk", func(t *testing.T) {
		look(t, "/tmp", "call", "small", "bash", `{"command": "head -c 30M /dev/zero >/tmp/a-file-with-a-long-name"}`)
		look(t, "/tmp", "exec", "small", "--", "dd", "if=/dev/zero", "of=/tmp/another-file", "bs=1M", "count=30", "status=none")
	})
	t.Run("doctor of an agent", func(t *testing.T) {
		r.look(t, "own tools", "mcp", "--doctor", "opencode", "--program", alone(t, r.dir))
	})
	t.Run("starting", func(t *testing.T) {
		r.starts(t, "ready --wait", "ready", "session create", "apply changed")
	})
}

// watched looks at a command that shows what there is, and what comes, until a key is pressed.
func (r *rig) watched(t *testing.T, after string, args ...string) {
	t.Helper()
	sent, exit := r.pressed(t, 80, after, "q", args...)
	v := vt10x.New(vt10x.WithSize(80, screenRows))
	_, err := v.Write([]byte(sent))
	testrig.Must(t, err)
	if broken := brokenWords(strings.Split(v.String(), "\n"), sent); exit != 0 || len(broken) > 0 {
		t.Errorf("%q exits with %d and breaks %q in\n%s", args, exit, broken, v.String())
	}
}

// alone makes a program that is configured as OpenCode is, and offers its model a tool of its own alone.
func alone(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "alone")
	testrig.Must(t, testrig.WriteProgram(program, []byte(`#!/bin/sh
url=$(sed -n 's/.*"baseURL": "\([^"]*\)".*/\1/p' "$HOME/opencode.json")
curl -s "$url/chat/completions" -d '{"model": "m", "messages": [], "tools": [{"type": "function", "function": {"name": "a_shell_of_its_own_with_a_long_name", "parameters": {}}}]}'
echo it ends with a message that is a good deal longer than a terminal of eighty columns is wide
`)))
	return program
}

// starts looks at commands while the daemon starts: sessions that do not answer keep it from being ready for some seconds.
func (r *rig) starts(t *testing.T, says string, commands ...string) {
	t.Helper()
	testrig.Must(t, r.daemon.Kill())
	r.killed = true
	frozen := false
	for _, dir := range testrig.Cgroups(r.cgroup) {
		if f, err := os.OpenFile(filepath.Join(dir, "cgroup.freeze"), os.O_WRONLY, 0); err == nil { // of version 2
			_, err := f.WriteString("1")
			frozen = errors.Join(err, f.Close()) == nil
		}
	}
	if !frozen {
		t.Skip("this host freezes no cgroups")
	}
	testrig.Must(t, os.Remove(r.socket)) // that of the killed one
	d, err := testrig.LaunchDaemon(r.socket, filepath.Join(r.dir, "log"), r.argv(nil)...)
	testrig.Must(t, err)
	r.daemon, r.killed = d, false
	testrig.Eventually(t, "it listens", func() bool {
		_, err := os.Stat(r.socket)
		return err == nil
	})
	for _, line := range commands {
		r.look(t, says, strings.Fields(line)...)
	}
	testrig.Must(t, d.Ready())
}

// TestScreensOfTenants: the tables that have much to show, on a daemon with two tenants, to an admin and to the
// user of one of them, whose refusals name what that user may do.
func TestScreensOfTenants(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.toml")
	testrig.Must(t, os.WriteFile(config, []byte(`
[daemon]
socket_group = "nogroup"
[network]
mode = "rules"
[permission.bash]
"make *" = "ask"
"rm *" = { action = "deny", reason = "what is in the worktree is the team's, and is put aside with git stash" }
[permission.network]
"*.example" = "deny"
[tenant.a-team-with-a-long-name]
uids = [40001]
`), 0o600))
	r := newDaemon(t, "--config", config)
	user := *r
	user.uid = 40001
	image := filepath.Join(r.dir, "image", "bin")
	rules := filepath.Join(r.dir, "rules.toml")
	testrig.Must(t, errors.Join(os.MkdirAll(image, 0o755), os.WriteFile(rules, []byte("[permission]\nbash = \"deny\"\n"), 0o600)))
	r.shell(t, `
		as() { setpriv --reuid 40001 --regid 65534 --clear-groups toolctl "$@"; }
		of() { toolctl --tenant a-team-with-a-long-name "$@"; }
		toolctl image import "$1" --name registry.example/a-group/an-image-with-a-long-name:1.2.3
		toolctl cache fill go --from mod="$1"
		toolctl session create --name admins-own
		as session create --name a-session-with-a-long-name --net rules --label job=nightly-build
		as call a-session-with-a-long-name bash 'curl -sm 5 http://a-host-with-a-long-name.example/' || true
		as call a-session-with-a-long-name bash 'make a target that is saved' --wait 0
		of approvals answer "$(of approvals list -o name)" always --scope tenant
		as call a-session-with-a-long-name bash 'make # and a comment that is a good deal longer than a terminal is wide' --wait 0
	`, filepath.Dir(image))
	for _, x := range []shown{
		{"approvals", "apr_"},
		{"approvals list", "a-team-with-…"},
		{"approvals saved", "make"},
		{"audit tail " + filepath.Join(r.dir, "state/audit"), "failed"},
		{"cache ls", "cow"},
		{"events", "approval.asked"},
		{"image list", "an-image-with-a-long-name"},
		{"network learn a-session-with-a-long-name", ""},
		{"network log a-session-with-a-long-name", "deny"},
		{"policy replay " + rules, "deny"},
		{"session list", "a-session-wi…"},
		{"session rm a-session-with-a-long-name", "--tenant a-team-with-a-long-name"},
		{"session show a-session-with-a-long-name", "nightly-build"},
		{"status", "a-team-with-a-long-name"},
		{"tools --session a-session-with-a-long-name", "bash"},
		{"top", "a-team"},
		{"approvals watch", "terminal is wide"},
		{"usage", "a-team-with-a-long-name"},
	} {
		t.Run(x.line, func(t *testing.T) {
			switch x.line {
			case "top", "approvals watch":
				r.watched(t, x.says, strings.Fields(x.line)...)
				return
			}
			r.look(t, x.says, strings.Fields(x.line)...)
		})
	}
	for _, x := range []shown{
		{"approvals", "apr_"},
		{"approvals saved", "make"},
		{"apply admins-own", "toolctl session list"},
		{"audit tail " + filepath.Join(r.dir, "state/audit"), "root"},
		{"backup create " + filepath.Join(r.dir, "backup"), ""},
		{"cache fill go --from mod=/etc/hostname", ""},
		{"cache ls", ""},
		{"cache rm go", ""},
		{"config show", ""},
		{"doctor", ""},
		{"drain", "admin"},
		{"gc", "admin"},
		{"image import " + rules + " --name x", "permission denied"},
		{"image list", "an-image-with-a-long-name"},
		{"image rm nosuch", "admin"},
		{"policy replay " + rules, ""},
		{"reload", "admin"},
		{"session list", "a-session-wi…"},
		{"session list -A", "leave"},
		{"session show admins-own", "toolctl session list"},
		{"--tenant default session list", ""},
		{"session create --worktree /root", ""},
		{"status", ""},
		{"usage", ""},
	} {
		t.Run("user "+x.line, func(t *testing.T) { user.look(t, x.says, strings.Fields(x.line)...) })
	}

	for _, line := range []string{"call a-session-with-a-long-name bash", "exec a-session-with-a-long-name --"} {
		t.Run("denied "+line, func(t *testing.T) {
			user.look(t, "git stash", append(strings.Fields(line), "rm -rf a-directory-with-a-long-name/another-directory")...)
		})
	}
	// Whatever else there is, of what is another tenant's, or an admin's.
	for name, examples := range screenExamples {
		for _, x := range examples {
			if x.line != "-" && name != "run" {
				t.Run("user "+x.line, func(t *testing.T) { user.look(t, "", strings.Fields(x.line)...) })
			}
		}
	}

	daemon := *r
	daemon.program = "toold"
	for _, line := range []string{"--help", "--no-such-flag", "--config /nosuch", "--check --config /nosuch", "nosuch", "--state-dir relative"} {
		t.Run("toold "+line, func(t *testing.T) { daemon.look(t, "", strings.Fields(line)...) })
	}
}

// Words that the end of a line cuts are found, and only those.
func TestBrokenWords(t *testing.T) {
	full := strings.Repeat("x ", 38)
	for _, c := range []struct{ text, broken string }{
		{full + "word\nnext", "[wordnext]"},
		{full + "line\nends", "[]"},
		{full + "word\n next", "[]"},
		{full + "wor\nnext", "[]"},
		{full + "word", "[]"},
		{full + "word\n", "[]"},
	} {
		if got := fmt.Sprint(brokenWords(strings.Split(c.text, "\n"), full+"wordnext")); got != c.broken {
			t.Errorf("%q: %s", c.text, got)
		}
	}
}

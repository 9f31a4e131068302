package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// capture is what a terminal with so many columns is sent by toolctl, without colours.
func (r *rig) capture(t *testing.T, columns int, args ...string) string {
	t.Helper()
	sent, _ := r.raw(t, columns, args...)
	return strings.ReplaceAll(sgr.ReplaceAllString(sent, ""), "\r\n", "\n")
}

// raw is what a terminal with so many columns is sent by toolctl, and its exit code.
func (r *rig) raw(t *testing.T, columns int, args ...string) (sent string, exit int) {
	t.Helper()
	return r.pressed(t, columns, "", "", args...)
}

// pressed is raw with a key that is pressed when a text has been shown, and again until the program has
// ended: one that it does not look for yet is lost.
func (r *rig) pressed(t *testing.T, columns int, after, key string, args ...string) (sent string, exit int) {
	t.Helper()
	master, slave, err := openPTY()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound) // a question that nobody answers
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, cmp.Or(r.program, "toolctl")), args...)
	cmd.Dir = r.dir
	cmd.Env = []string{"TERM=xterm", "PATH=" + programs + ":" + os.Getenv("PATH"), "TOOLD_SOCKET=" + r.socket, "TMPDIR=" + r.dir}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if r.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: r.uid, Gid: 65534}
	}
	if err := errors.Join(cmd.Start(), slave.Close()); err != nil {
		t.Fatal(err)
	}
	var presses []press
	if after != "" {
		presses = []press{{after: after, keys: key, held: true}}
	}
	shown, err := readPressing(master, presses)
	if err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	return string(shown), cmd.ProcessState.ExitCode()
}

var (
	sgr     = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")
	figures = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
	broken  = regexp.MustCompile(`\n *`)
	id      = regexp.MustCompile(`^(ses|call|apr)_[0-9a-z]*$`)
	// typed are commands, which stay on one line so that they can be copied.
	typed = regexp.MustCompile(`^(toolctl:)?  +[^ ].*toolctl |^(toolctl:)?  +toolctl `)
)

// words are those of a capture, without figures, which are others the next time.
func words(text string) []string {
	return strings.Fields(figures.ReplaceAllString(text, "0"))
}

// compareCapture says what is wrong with a capture, given the one of a terminal on
// which there is room for everything.
func compareCapture(columns int, narrow, wide string) (wrong []string) {
	for l := range strings.SplitSeq(narrow, "\n") {
		if n := utf8.RuneCountInString(l); n > columns && !typed.MatchString(l) {
			wrong = append(wrong, fmt.Sprintf("%d columns: %s", n, l))
		}
	}
	all := words(wide)
	// A word that is longer than a line goes on in the next one.
	whole := figures.ReplaceAllString(broken.ReplaceAllString(narrow, ""), "0")
	for _, w := range words(narrow) {
		isPart := func(of string) bool {
			return id.MatchString(w) && strings.HasPrefix(of, w) || strings.Contains(of, w) && strings.Contains(whole, of)
		}
		if !strings.Contains(w, "…") && !slices.Contains(all, w) && !slices.ContainsFunc(all, isPart) {
			wrong = append(wrong, "cut without a sign: "+w)
		}
	}
	if strings.Contains(narrow, "…") {
		return wrong
	}
	shown := words(narrow)
	for _, w := range all {
		isWhole := func(part string) bool { return id.MatchString(part) && strings.HasPrefix(w, part) }
		if !slices.Contains(shown, w) && !strings.Contains(whole, w) && !slices.ContainsFunc(shown, isWhole) {
			wrong = append(wrong, "not there, without a sign: "+w)
		}
	}
	return wrong
}

// subcommands are the commands of toolctl below one, by its own help.
func (r *rig) subcommands(t *testing.T, of ...string) (all [][]string) {
	help := r.toolctl(t, append(of, "--help")...)
	all = append(all, of)
	_, list, ok := strings.Cut(help, "\nAvailable Commands:\n")
	if !ok {
		return all
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for l := range strings.SplitSeq(list, "\n") {
		if f := strings.Fields(l); len(f) > 0 && f[0] != "help" {
			all = append(all, r.subcommands(t, append(slices.Clone(of), f[0])...)...)
		}
	}
	return all
}

// What the main commands show fits the terminal: no line is wider, and nothing is left
// out without a sign.
func TestCaptures(t *testing.T) {
	r := newDaemon(t)
	tree := filepath.Join(r.dir, "a-directory-with-a-long-name/for-the-worktree-of-a-session")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	r.toolctl(t, "session", "create", "--name", "work", "--worktree", tree, "--label", "job=nightly-build-of-the-main-branch", "--label", "team=search")
	r.toolctl(t, "session", "create", "--name", "a-session-with-quite-a-long-name")
	r.toolctl(t, "session", "create", "--name", "over")
	r.toolctl(t, "session", "rm", "over")
	r.shell(t, `
		toolctl call work bash '{"command": "echo a line of output; seq 3 # and a command that is a good deal longer than a terminal is wide, to its end"}'
		toolctl call work read '{"file_path": "nothing"}' || true
		toolctl call work write '{"file_path": "f", "content": "text\n"}'`)
	for _, args := range [][]string{
		{"session", "list"},
		{"session", "list", "--all"},
		{"session", "show", "work"},
		{"session", "logs", "work"},
		{"session", "logs", "work", "--short"},
		{"approvals"},
		{"doctor"},
		{"usage"},
		{"gc", "--dry-run"},
		{"image", "list"},
		{"tools"},
		{"audit", "tail", filepath.Join(r.dir, "state/audit")},
		{"policy", "explain", "bash", "git status && cat /etc/passwd > /etc/motd"},
		{"version"},
		{"nonsense"},
		{"session", "show", "nothing"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) { r.checkCaptures(t, args...) })
	}
	for _, args := range r.subcommands(t) {
		t.Run(strings.Join(args, " ")+" help", func(t *testing.T) { r.checkCaptures(t, append(args, "--help")...) })
	}
}

func (r *rig) checkCaptures(t *testing.T, args ...string) {
	wide := r.capture(t, 2000, args...)
	if strings.TrimSpace(wide) == "" {
		t.Error("it shows nothing")
	}
	for _, columns := range []int{80, 100} {
		narrow := r.capture(t, columns, args...)
		if wrong := compareCapture(columns, narrow, wide); len(wrong) > 0 {
			t.Errorf("%d columns:\n%s\n\n%s", columns, strings.Join(wrong, "\n"), narrow)
		}
	}
}

// A capture with a fault is found.
func TestCompareCapture(t *testing.T) {
	wide := "ID        NAME  PATH\nses_12ab  x     /a/long/path\n"
	for name, c := range map[string]struct {
		narrow string
		wrong  int
	}{
		"the same":            {wide, 0},
		"too wide":            {"ID        NAME            PATH\nses_12ab  x               /a/long/path\n", 2},
		"cut with a sign":     {"ID      NAME  PATH\nses_12  x     /a/lo…\n", 0},
		"cut without a sign":  {"ID      NAME  PATH\nses_12  x     /a/lo\n", 2},
		"a column is missing": {"ID        NAME\nses_12ab  x\n", 2},
		"another figure":      {"ID        NAME  PATH\nses_99ab  x     /a/long/path\n", 0},
	} {
		if wrong := compareCapture(28, c.narrow, wide); len(wrong) != c.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

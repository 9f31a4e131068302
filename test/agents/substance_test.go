package agents

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// What a call came to is compared in three respects.
const (
	inError = "error" // one of the tools says that the call failed
	inFiles = "files" // the trees are not the same afterwards
	inText  = "text"  // the model is told something else
)

// substance is what a text says to a model, without the form that one of the tools gives
// it: "1: one" of OpenCode and "1\tone" of toold are both the first line. Of a change only
// the files count, of an error that it is one.
func substance(tool string, o outcome, theirs bool) string {
	said := o.text
	form := forms[tool]
	if form == nil {
		return ""
	}
	lines := form(said, theirs)
	if theirs {
		o.next = goesOnAt(said)
	}
	return strings.Join(lines, "\n") + fmt.Sprintf("\nexit=%s next=%d attached=%v", o.exit, o.next, o.attachs)
}

var forms = map[string]func(text string, theirs bool) []string{
	"bash": bashForm, "read": readForm, "grep": grepForm, "glob": globForm, "todowrite": todoForm,
}

var (
	theirLine  = regexp.MustCompile(`^(\d+): (.*)$`)
	ourLine    = regexp.MustCompile(`^ *(\d+)\t(.*)$`)
	theirGoOn  = regexp.MustCompile(`(?m)^\(.*Use offset=(\d+) to continue\.\)\n</content>|Use 'offset' parameter to read beyond entry (\d+)`)
	theirMatch = regexp.MustCompile(`^  Line (\d+): (.*)$`)
	ourMatch   = regexp.MustCompile(`^  (\d+): (.*)$`)
	theirTail  = regexp.MustCompile(`(?s)\n\n<shell_metadata>.*</shell_metadata>$`)
	ourTail    = regexp.MustCompile(`(^|\n)(exit code \d+|killed by SIG\w+|timed out after [^\n]*)$|\n\([^\n]* in the background (was|were) killed[^\n]*\)$`)
	moreOf     = regexp.MustCompile(`(?m)^Found (more than )?\d+ match.*(more|Narrow).*$|^\((Results are truncated|There are more).*\)$`)
)

func goesOnAt(text string) int {
	m := theirGoOn.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	if m[1] == "" { // of a directory
		m[1] = m[2]
	}
	n, _ := strconv.Atoi(m[1]) // digits, or too many of them
	return n
}

// bashForm is what a command printed.
func bashForm(text string, theirs bool) []string {
	if theirs {
		text = theirTail.ReplaceAllString(text, "")
	} else {
		text = ourTail.ReplaceAllString(text, "")
	}
	if text == "(no output)" {
		text = ""
	}
	return []string{strings.TrimSuffix(text, "\n")}
}

// readForm has the lines of a file, or the entries of a directory.
func readForm(text string, theirs bool) (lines []string) {
	line := ourLine
	if theirs {
		line = theirLine
		if _, list, ok := strings.Cut(text, "<entries>\n"); ok {
			list, _, _ = strings.Cut(list, "\n(")
			return strings.Split(strings.TrimRight(list, "\n"), "\n")
		}
		_, text, _ = strings.Cut(text, "<content>\n")
	} else if list, _, ok := strings.Cut(text, "\n(entries "); ok {
		return strings.Split(strings.TrimRight(list, "\n"), "\n")
	}
	for s := range strings.SplitSeq(text, "\n") {
		if m := line.FindStringSubmatch(s); m != nil {
			lines = append(lines, m[1]+": "+m[2])
		}
	}
	return lines
}

// grepForm has the matches, as path, number and line; of too many their number, since any
// of them may be shown. The carriage return at the end of a line is no part of it.
func grepForm(text string, theirs bool) (matches []string) {
	match, path := ourMatch, ""
	if theirs {
		match = theirMatch
	}
	for s := range strings.SplitSeq(text, "\n") {
		if m := match.FindStringSubmatch(s); m != nil {
			matches = append(matches, path+":"+m[1]+": "+strings.TrimSuffix(m[2], "\r"))
		} else if name, ok := strings.CutSuffix(s, ":"); ok {
			name, _, _ = strings.Cut(name, " (CRLF ")
			path = strings.TrimPrefix(name, "{tree}/")
		}
	}
	return unordered(matches, text)
}

func unordered(found []string, text string) []string {
	if moreOf.MatchString(text) {
		return []string{fmt.Sprintf("%d of more", len(found))}
	}
	slices.Sort(found)
	return found
}

// globForm has the paths, as grepForm. OpenCode has them in no order.
func globForm(text string, _ bool) (paths []string) {
	for s := range strings.SplitSeq(text, "\n") {
		if s != "" && !strings.HasPrefix(s, "(") && !strings.HasPrefix(s, "No files found") {
			paths = append(paths, strings.TrimPrefix(s, "{tree}/"))
		}
	}
	return unordered(paths, text)
}

// todoForm has the tasks, as toold shows them: a middling priority is not said.
func todoForm(text string, theirs bool) (tasks []string) {
	var list []struct{ Content, Status, Priority string }
	switch {
	case !theirs:
		for s := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(s, "[") {
				tasks = append(tasks, s)
			}
		}
		return tasks
	case json.Unmarshal([]byte(text), &list) != nil:
		return []string{text}
	}
	marks := map[string]string{"pending": " ", "in_progress": ">", "completed": "x", "cancelled": "-"}
	for _, t := range list {
		tasks = append(tasks, strings.TrimSuffix(fmt.Sprintf("[%s] %s (%s)", marks[t.Status], t.Content, t.Priority), " (medium)"))
	}
	return tasks
}

// differences are the respects in which two outcomes of a call differ.
func differences(tool string, theirs, ours outcome) (respects []string) {
	if theirs.failed != ours.failed {
		respects = append(respects, inError)
	}
	if !equal(theirs.files, ours.files) {
		respects = append(respects, inFiles)
	}
	if !theirs.failed && !ours.failed && substance(tool, theirs, true) != substance(tool, ours, false) {
		respects = append(respects, inText)
	}
	return respects
}

func equal(a, b map[string]string) bool { return len(unlike(a, b)) == 0 }

// unlike are the paths at which two trees differ, with what stands there.
func unlike(a, b map[string]string) (paths []string) {
	for path, what := range a {
		if other, ok := b[path]; !ok || other != what {
			paths = append(paths, fmt.Sprintf("%s: OpenCode %.300q, toold %.300q", path, what, other))
		}
	}
	for path, what := range b {
		if _, ok := a[path]; !ok {
			paths = append(paths, fmt.Sprintf("%s: only toold %.300q", path, what))
		}
	}
	slices.Sort(paths)
	return paths
}

var showAll = flag.Bool("show", false, "show what every call of TestDiffer came to")

// compare fails on a difference without a line, and on a line without a difference.
func compare(t *testing.T, calls []toolCall, theirs, ours map[string]outcome) {
	known := readDifferences(t)
	for _, c := range calls {
		a, hasA := theirs[c.ID]
		b, hasB := ours[c.ID]
		if !hasA || !hasB {
			t.Errorf("%s: made by OpenCode %v, by toold %v", c.ID, hasA, hasB)
			continue
		}
		found := differences(c.Tool, a, b)
		if *showAll {
			input, _ := json.Marshal(c.Input)
			fmt.Fprintf(os.Stderr, "=== %s %s %s %v\n--- OpenCode (failed %v)\n%.3000s\n--- toold (failed %v)\n%.3000s\n%s\n", c.ID, c.Tool, input, found, a.failed, a.text, b.failed, b.text, strings.Join(unlike(a.files, b.files), "\n"))
		}
		for _, respect := range found {
			line := c.ID + " " + respect
			if _, ok := known[line]; !ok {
				t.Errorf("a difference without a line in differences.txt: %s\nOpenCode (failed %v): %.2000q\ntoold (failed %v): %.2000q\n%s\nsubstance:\n%.1500q\n%.1500q",
					line, a.failed, a.text, b.failed, b.text, strings.Join(unlike(a.files, b.files), "\n"), substance(c.Tool, a, true), substance(c.Tool, b, false))
			}
			delete(known, line)
		}
	}
	for line, why := range known {
		t.Errorf("differences.txt: %q (%s) is no difference any more: take the line out", line, why)
	}
}

// readDifferences has the reason of each line of testdata/differences.txt: "# " and the
// reason, and below it the calls that differ for it, each with the respect.
func readDifferences(t *testing.T) lines {
	t.Helper()
	b, err := os.ReadFile("testdata/differences.txt")
	testrig.Must(t, err)
	known, why := make(lines), ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if reason, ok := strings.CutPrefix(line, "# "); ok {
			why = reason
		} else if line != "" {
			if why == "" || known[line] != "" {
				t.Fatalf("differences.txt: %q has no reason, or stands twice", line)
			}
			known[line] = why
		}
	}
	return known
}

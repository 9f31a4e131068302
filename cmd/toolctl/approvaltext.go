package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/shell"
)

// textLine is one line of text that is safe to show, in a colour.
type textLine struct {
	text  string
	color int
}

// visible gives the lines of a hostile text with everything spelled out that
// acts on a terminal, hides, or poses as another character. Unlike a screen it
// also spells out colours: what is shown for approval must be all that there is.
func visible(text string) []string {
	text = strings.ReplaceAll(strings.TrimSuffix(shell.Visible(text), "\n"), "\t", "    ")
	return strings.Split(visibleParts(text, "\n"), "\n")
}

// visibleLine is a hostile text on one line, likewise.
func visibleLine(text string) string { return line(shell.Visible(text)) }

// approvalHead names the call that waits.
func approvalHead(a *client.Approval, now time.Time) string {
	where := fmt.Sprintf("in session %s, profile %s", line(a.SessionID), line(a.Profile))
	if a.Tenant != auth.DefaultTenant {
		where += ", tenant " + line(a.Tenant)
	}
	return fmt.Sprintf("%s  %s  %s; %s", line(a.ID), line(a.Tool), where, expiresIn(a, now))
}

func expiresIn(a *client.Approval, now time.Time) string {
	left := a.Expires.Sub(now)
	if left <= 0 {
		return "expires now"
	}
	return "expires in " + span(left)
}

// approvalBody is what the call wants to do: first what a person wants to see of
// it, then each thing that needs a yes.
func approvalBody(a *client.Approval) []textLine {
	var body []textLine
	for _, name := range metadataNames(a.Metadata) {
		body = append(body, section(name, a.Metadata[name])...)
	}
	return append(body, requestLines(a)...)
}

// truncatedKey says in an approval's metadata that texts in it were cut.
const truncatedKey = "truncated"

// metadataNames are the parts of what is shown, the telling ones first.
func metadataNames(m map[string]any) []string {
	first := []string{"command", "stdin", "input", "diff", "path", "workdir", "env", "description"}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(n string) bool { return n == truncatedKey })
	slices.SortStableFunc(names, func(a, b string) int { return rank(first, a) - rank(first, b) })
	return names
}

func rank(first []string, name string) int {
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

// truncated reports whether the daemon has cut what is shown.
func truncated(a *client.Approval) bool {
	switch cut := a.Metadata[truncatedKey].(type) {
	case nil:
		return false
	case bool:
		return cut
	}
	return true
}

// section is one named value: short ones on the line of their name.
func section(name string, value any) []textLine {
	text, ok := value.(string)
	if !ok {
		b, err := json.Marshal(value)
		if err != nil {
			return nil
		}
		text = string(b)
	}
	shown := visible(text)
	if len(shown) == 1 && name != "command" {
		return []textLine{{text: line(name) + ": " + shown[0]}}
	}
	out := []textLine{{text: line(name) + ":"}}
	for _, l := range shown {
		t := textLine{text: "  " + l}
		if name == "diff" {
			t.color = diffColor(l)
		}
		out = append(out, t)
	}
	return out
}

// diffColor is the colour of a line of a unified diff.
func diffColor(l string) int {
	switch {
	case strings.HasPrefix(l, "+++") || strings.HasPrefix(l, "---"):
		return colorGrey
	case strings.HasPrefix(l, "+"):
		return colorGreen
	case strings.HasPrefix(l, "-"):
		return colorRed
	case strings.HasPrefix(l, "@@"):
		return colorCyan
	}
	return 0
}

// requestLines is each thing that needs a yes, with the rule that asks. The command, which stands above, is not
// repeated.
func requestLines(a *client.Approval) []textLine {
	out := []textLine{{text: "needs a yes for:"}}
	command, _ := a.Metadata["command"].(string)
	for _, r := range a.Requests {
		what := visibleLine(r.Pattern)
		if command != "" && r.Pattern == command {
			what = "(the command above)"
		}
		out = append(out, textLine{"  " + line(r.Permission) + " " + what, colorYellow})
		why := "    asked by " + line(r.Rule)
		if r.Reason != "" {
			why += ": " + line(r.Reason)
		}
		switch {
		case r.Save == "":
		case r.Save == r.Pattern && !strings.ContainsAny(r.Save, "*?["):
			why += "; always would allow that very text"
		default:
			why += "; always would allow " + line(r.Permission) + " " + visibleLine(r.Save)
		}
		out = append(out, textLine{why, colorGrey})
	}
	return out
}

// savable reports whether "always" would save anything.
func savable(a *client.Approval) bool {
	return slices.ContainsFunc(a.Requests, func(r client.ApprovalRequest) bool { return r.Save != "" })
}

// approvalShort is a call in one line, safe to show: what it is about, or else
// its first request.
func approvalShort(a *client.Approval) string {
	for _, name := range []string{"command", "path"} {
		if text, ok := a.Metadata[name].(string); ok {
			return visibleLine(text)
		}
	}
	if len(a.Requests) > 0 {
		return visibleLine(a.Requests[0].Permission + " " + a.Requests[0].Pattern)
	}
	return ""
}

// inputBody is the whole input of a call, as the tool gets it.
func inputBody(input json.RawMessage) []textLine {
	var fields map[string]any
	if json.Unmarshal(input, &fields) != nil {
		return section("input", string(input))
	}
	var body []textLine
	for _, name := range metadataNames(fields) {
		body = append(body, section(name, fields[name])...)
	}
	return body
}

// continued begins the rest of a line that is too long for the screen.
const continued = "↪ "

// wrapLines breaks lines that are wider than the screen.
func wrapLines(all []textLine, wide int) []textLine {
	wide = max(wide, 20)
	var out []textLine
	for _, l := range all {
		rest := l.text
		for {
			n := fitting(rest, wide)
			out = append(out, textLine{rest[:n], l.color})
			if rest = rest[n:]; rest == "" {
				break
			}
			rest = continued + rest
		}
	}
	return out
}

// cutMiddle leaves out the middle of what does not fit into most lines: what is
// hidden on purpose stands at the end more often than at the start.
func cutMiddle(all []textLine, most int) (shown []textLine, hidden int) {
	if most = max(most, 3); len(all) <= most {
		return all, 0
	}
	head := (most - 1) * 2 / 3
	tail := most - 1 - head
	hidden = len(all) - head - tail
	shown = append(shown, all[:head]...)
	shown = append(shown, textLine{"… " + plain.Count(hidden, "line is", "lines are") + " not shown here …", colorYellow})
	return append(shown, all[len(all)-tail:]...), hidden
}

// joinLines writes lines with their colours.
func joinLines(all []textLine, indent string, color bool) string {
	var b strings.Builder
	for _, l := range all {
		b.WriteString(indent)
		b.WriteString(painted(l.text, l.color, color))
		b.WriteByte('\n')
	}
	return b.String()
}

// maxShort is how many columns of a command or a path a table shows.
const maxShort = 60

// answers are what can be said to an approval, scopes how far an always reaches.
var (
	answers = []string{string(client.AnswerOnce), string(client.AnswerAlways), string(client.AnswerReject)}
	scopes  = []string{string(client.ScopeSession), string(client.ScopeProfile), string(client.ScopeTenant)}
)

// answered says what an answer has done.
func answered(a client.ApprovalAnswer) string {
	switch a.Answer {
	case client.AnswerOnce:
		return "is allowed, once"
	case client.AnswerAlways:
		text := "is allowed, always in this " + string(cmp.Or(a.Scope, client.ScopeSession))
		if a.Expires != "" {
			text += " for " + line(a.Expires)
		}
		return text
	}
	return "is rejected"
}

// savedText says what a rule that was saved allows, and how to take it back.
func savedText(s *client.SavedApproval) string {
	return fmt.Sprintf("from now on allowed: %s %s (to take it back: toolctl approvals saved rm %s)", line(s.Permission), visibleLine(s.Pattern), line(s.ID))
}

// savedTexts are savedText of all that an answer has saved; none of nil.
func savedTexts(r *client.ApprovalReply) (all []string) {
	if r == nil {
		return nil
	}
	for i := range r.Saved {
		all = append(all, savedText(&r.Saved[i]))
	}
	return all
}

// replyText is how an approval ended.
func replyText(r client.ApprovalReply) string {
	text := line(r.Answer)
	if r.By != "" {
		text += " by " + line(r.By)
	}
	if r.Message != "" {
		text += ": " + line(r.Message)
	}
	return text
}

package run

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// form is another way to write a search.
type form struct {
	in    grepInput
	words string // what is different, for "with …"
}

// otherForms are what a search may mean that found nothing, the likeliest first: an include that
// is a list or an extension, alternatives as in basic regular expressions, a pattern that is a
// text, and letters of the other case.
func otherForms(in grepInput) (all []form) {
	add := func(change func(*grepInput), words string, args ...any) {
		f := form{in, fmt.Sprintf(words, args...)}
		change(&f.in)
		all = append(all, f)
	}
	if better := betterInclude(in.Include); better != in.Include {
		add(func(in *grepInput) { in.Include = better }, "include %q", better)
	}
	if !in.Literal {
		if plain := strings.ReplaceAll(in.Pattern, `\|`, "|"); plain != in.Pattern {
			add(func(in *grepInput) { in.Pattern = plain }, "the pattern %q", plain)
		}
		if regexp.QuoteMeta(in.Pattern) != in.Pattern {
			add(func(in *grepInput) { in.Literal = true }, "literal")
		}
	}
	for _, other := range otherUnicode(in.Pattern) {
		add(func(in *grepInput) { in.Pattern = other }, "the same letters in another Unicode form (%+q)", other)
	}
	if !in.IgnoreCase && strings.ToLower(in.Pattern) != strings.ToUpper(in.Pattern) {
		add(func(in *grepInput) { in.IgnoreCase = true }, "ignore_case")
	}
	return all
}

// betterInclude is an include in the form of a glob: "ts" and ".ts" are "*.ts", and a list
// ("*.ts;*.tsx", "*.ts, *.tsx", "ts|tsx") is in braces.
func betterInclude(include string) string {
	between := ";,| "
	switch {
	case strings.ContainsAny(include, "[!"):
		return include
	case strings.Contains(include, "{"):
		between = ";" // the others may be in the braces
	case strings.Contains(include, "/"):
		between = ";,|"
	}
	parts := strings.FieldsFunc(include, func(r rune) bool { return strings.ContainsRune(between, r) })
	for i, p := range parts {
		if parts[i] = strings.TrimSpace(p); strings.ContainsAny(p, "/{") {
			continue
		}
		if name := strings.TrimPrefix(p, "."); !strings.ContainsAny(name, ".*?") {
			parts[i] = "*." + name
		}
	}
	switch len(parts) {
	case 0:
		return include
	case 1:
		return parts[0]
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// grepFormTime bounds otherForm.
const grepFormTime = 500 * time.Millisecond

// otherForm looks once more, in the forms that a search that found nothing may mean, and says
// which finds something; "" where none does in grepFormTime.
func (g *grepSearch) otherForm(ctx context.Context, env *Env, target root.Info, small bool) string {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(env.Patience, grepFormTime))
	defer cancel()
	for _, f := range otherForms(g.in) {
		f.in.OutputMode, f.in.Limit = grepFiles, grepWhyFiles
		again := newGrepSearch(f.in, target)
		again.unread = &unread{rules: g.unread.rules}
		if f.in.Include != "" && target.Kind == root.KindDir {
			var err error
			if again.include, err = newSelector(f.in.Include, again.base); err != nil {
				continue
			}
		}
		run := ripgrepRun{args: again.args(), place: again.place, out: again.splitter(), small: small, timeout: max(time.Millisecond, remaining(ctx))}
		end, err := run.run(ctx, env)
		if ctx.Err() != nil {
			return ""
		}
		if err != nil || again.matches == 0 {
			continue
		}
		first := slices.MinFunc(again.files, func(a, b *grepFile) int { return strings.Compare(a.path, b.path) }).path
		count := plain.Count(again.matches, "file matches", "files match")
		if again.more || end.partial != "" {
			count = "at least " + count
		}
		return fmt.Sprintf("\n(With %s %s, for example %s.)\n", f.words, count, plain.Name(first))
	}
	return ""
}

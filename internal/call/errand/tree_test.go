package errand

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
)

// saying is an agent that streams a text, in pieces of the given size, and answers.
type saying struct {
	Conn
	text   string
	piece  int
	answer agent.Outcome
	acked  int64
	asked  agent.Request
	gone   []string
	prep   *run.Prepared
	before func() // it runs
	fails  error
}

func (s *saying) Prepare(context.Context, agent.Request) (*run.Prepared, error) {
	if s.prep == nil {
		return nil, errors.New("nothing is prepared")
	}
	return s.prep, nil
}

func (s *saying) Run(_ context.Context, r agent.Request, sink agent.Sink) (*agent.Outcome, error) {
	s.asked = r
	if s.before != nil {
		s.before()
	}
	for at := 0; at < len(s.text); at += s.piece {
		if err := sink.Output(int64(at), false, []byte(s.text[at:min(at+s.piece, len(s.text))])); err != nil {
			return nil, err
		}
	}
	return &s.answer, s.fails
}

func (s *saying) Ack(_ string, offset int64) error { s.acked = offset; return nil }
func (s *saying) Abort(id string, _ run.Reason) error {
	s.gone = append(s.gone, "aborted "+id)
	return nil
}
func (s *saying) Forget(id string) error { s.gone = append(s.gone, "forgot "+id); return nil }

// says makes an agent that answers with totals.
func says(text, totals string, piece int) (*saying, *Errand) {
	s := &saying{text: text, piece: piece, answer: agent.Outcome{Result: &run.Result{Output: totals}}}
	return s, &Errand{Conn: s, NewID: func() string { return "c" }}
}

func listOf(lines []treediff.Line, totals treediff.Totals) (text, answer string) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, l := range lines {
		_ = e.Encode(l)
	}
	_ = e.Encode(treediff.Last{Totals: &totals})
	out, _ := json.Marshal(totals)
	return b.String(), string(out)
}

// honest are lines as an agent may say them, in order.
func honest() []treediff.Line {
	return []treediff.Line{
		{Path: "\ufffd\ufffd", Bytes: []byte("\x80\xff"), Status: treediff.Added, Kind: treediff.Link},
		{Path: "\ufffd", Status: treediff.Added, Kind: treediff.Other},
		{Path: ".git/config", Status: treediff.Modified, Kind: treediff.File, OldKind: treediff.File, Mode: "0644", OldMode: "0600", Size: 1, Added: 1},
		{Path: "a", Status: treediff.Type, Kind: treediff.File, OldKind: treediff.Dir, Mode: "0644", OldMode: "1755", Binary: true},
		{Path: "a/b\n", Status: treediff.Deleted, OldKind: treediff.File, OldMode: "0644", OldSize: 9, Unreadable: "denied\x1b[0m"},
		{Path: "a/makefile", Status: treediff.Modified, Kind: treediff.Other, OldKind: treediff.Other},
	}
}

func TestTreeChanges(t *testing.T) {
	lines := honest()
	slices.SortFunc(lines, func(a, b treediff.Line) int { return strings.Compare(bytesOf(a), bytesOf(b)) })
	text, answer := listOf(lines, treediff.Totals{Files: 7, Added: 1, Unreadable: 1, More: true})
	for _, piece := range []int{1, 7, len(text)} {
		s, e := says(text, answer, piece)
		got, err := e.TreeChanges(t.Context(), client.DiffQuery{Limit: len(lines), Paths: []string{"a", "\xff"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Items) != len(lines) || got.Files != 7 || got.Added != 1 || got.Unreadable != 1 || s.acked != int64(len(text)) {
			t.Errorf("%+v, acknowledged %d of %d", got, s.acked, len(text))
		}
		for i, c := range got.Items {
			if c.Path != lines[i].Path || !bytes.Equal(c.Bytes, lines[i].Bytes) || string(c.Status) != string(lines[i].Status) ||
				c.Sensitive != (c.Path == ".git/config") || c.Build != (c.Path == "a/makefile") || strings.Contains(c.Unreadable, "\x1b") {
				t.Errorf("%+v of %+v", c, lines[i])
			}
		}
		// The next page begins behind the last path, whatever bytes that has.
		s, e = says(`{"totals":{"files":7,"added":1,"removed":0}}`+"\n", `{"files":7,"added":1,"removed":0}`, 5)
		if _, err := e.TreeChanges(t.Context(), client.DiffQuery{After: got.Next}); err != nil {
			t.Fatal(err)
		}
		var in struct{ After []byte }
		if err := json.Unmarshal(s.asked.Input, &in); err != nil || string(in.After) != bytesOf(lines[len(lines)-1]) {
			t.Errorf("the next page begins after %q, %v", in.After, err)
		}
	}
	if _, err := (&Errand{}).TreeChanges(t.Context(), client.DiffQuery{After: "!"}); err == nil {
		t.Error("a page after nothing")
	}
}

func bytesOf(l treediff.Line) string {
	if l.Bytes != nil {
		return string(l.Bytes)
	}
	return l.Path
}

// What no honest agent says is refused.
func TestTreeChangesHostile(t *testing.T) {
	good := treediff.Line{Path: "m", Status: treediff.Modified, Kind: treediff.File, OldKind: treediff.File, Mode: "0644", OldMode: "0644"}
	with := func(change func(l *treediff.Line)) []treediff.Line {
		l := good
		change(&l)
		return []treediff.Line{l}
	}
	tests := map[string][]treediff.Line{
		"absolute":          with(func(l *treediff.Line) { l.Path = "/etc" }),
		"up":                with(func(l *treediff.Line) { l.Path = "a/../../b" }),
		"empty":             with(func(l *treediff.Line) { l.Path = "" }),
		"empty part":        with(func(l *treediff.Line) { l.Path = "a//b" }),
		"dot":               with(func(l *treediff.Line) { l.Path = "a/." }),
		"NUL":               with(func(l *treediff.Line) { l.Path = "a\x00" }),
		"too long":          with(func(l *treediff.Line) { l.Path = strings.Repeat("a/", treediff.MaxPath/2) + "aa" }),
		"other text":        with(func(l *treediff.Line) { l.Bytes = []byte("x\xff") }),
		"needless bytes":    with(func(l *treediff.Line) { l.Bytes = []byte("m") }),
		"up in bytes":       with(func(l *treediff.Line) { l.Path, l.Bytes = "../\ufffd", []byte("../\xff") }),
		"order":             {with(func(l *treediff.Line) { l.Path = "z" })[0], good},
		"twice":             {good, good},
		"before the page":   with(func(l *treediff.Line) { l.Path = "a" }),
		"status":            with(func(l *treediff.Line) { l.Status = "x" }),
		"kind":              with(func(l *treediff.Line) { l.Kind, l.OldKind = "x", "x" }),
		"added over":        with(func(l *treediff.Line) { l.Status = treediff.Added }),
		"deleted and there": with(func(l *treediff.Line) { l.Status = treediff.Deleted }),
		"type of the same":  with(func(l *treediff.Line) { l.Status = treediff.Type }),
		"modified kind":     with(func(l *treediff.Line) { l.OldKind, l.OldMode = treediff.Link, "" }),
		"mode":              with(func(l *treediff.Line) { l.Mode = "+644" }),
		"no mode":           with(func(l *treediff.Line) { l.Mode = "" }),
		"old mode":          with(func(l *treediff.Line) { l.OldMode = "0698" }),
		"long mode":         with(func(l *treediff.Line) { l.Mode = "00644" }),
		"link's mode":       with(func(l *treediff.Line) { l.Status, l.OldKind = "type", "link" }),
		"link's size":       with(func(l *treediff.Line) { l.Status, l.OldKind, l.OldMode, l.OldSize = "type", "link", "", 1 }),
		"directory's size":  with(func(l *treediff.Line) { l.Kind, l.OldKind, l.Size = "dir", "dir", 1 }),
		"size":              with(func(l *treediff.Line) { l.Size = -1 }),
		"lines":             with(func(l *treediff.Line) { l.Added = -1 }),
		"binary lines":      with(func(l *treediff.Line) { l.Added, l.Binary = 1, true }),
		"unread lines":      with(func(l *treediff.Line) { l.Added, l.Unreadable = 1, "denied" }),
		"link's lines":      with(func(l *treediff.Line) { l.Kind, l.OldKind, l.Mode, l.OldMode, l.Added = "link", "link", "", "", 1 }),
	}
	for name, lines := range tests {
		text, answer := listOf(lines, treediff.Totals{Files: 2})
		_, e := says(text, answer, 1000)
		q := client.DiffQuery{}
		if name == "before the page" {
			q.After = "Yg" // b
		}
		if got, err := e.TreeChanges(t.Context(), q); !errors.Is(err, errNoAnswer) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	text, answer := listOf([]treediff.Line{good}, treediff.Totals{Files: 1})
	line, _, _ := strings.Cut(text, "\n")
	for name, tt := range map[string][2]string{
		"good":          {text, answer},
		"cut":           {line + "\n", answer},
		"cut line":      {text[:len(text)-1], answer},
		"more":          {text + line + "\n", answer},
		"two ends":      {text + text[len(line)+1:], answer},
		"two values":    {line + line + "\n" + text[len(line)+1:], answer},
		"unknown field": {strings.Replace(text, `"status"`, `"x":1,"status"`, 1), answer},
		"long line":     {line + strings.Repeat(" ", maxChangeLine) + text[len(line):], answer},
		"long totals":   {text, answer + strings.Repeat(" ", maxTotals)},
		"a tail":        {text + " ", answer},
		"other totals":  {text, `{"files":2,"added":0,"removed":0}`},
		"few":           {strings.Replace(text, `"files":1`, `"files":0`, 1), `{"files":0,"added":0,"removed":0}`},
		"negative":      {strings.Replace(text, `"added":0`, `"added":-1`, 1), `{"files":1,"added":-1,"removed":0}`},
		"more to come":  {strings.Replace(text, `"removed":0`, `"removed":0,"more":true`, 1), `{"files":1,"added":0,"removed":0,"more":true}`},
		"no totals":     {text, `x`},
	} {
		s, e := says(tt[0], tt[1], 1000)
		got, err := e.TreeChanges(t.Context(), client.DiffQuery{Limit: 2})
		if (err == nil) != (name == "good") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if n := len(s.gone); n == 0 || s.gone[n-1] != "forgot c" {
			t.Errorf("%s: %q", name, s.gone)
		}
	}
	if _, err := func() (*client.Changes, error) {
		_, e := says(text, answer, 1000)
		e.Conn.(*saying).answer = agent.Outcome{Err: run.Errorf(run.CodeInvalidInput, "no base")}
		return e.TreeChanges(t.Context(), client.DiffQuery{})
	}(); err == nil || !strings.Contains(err.Error(), "no base") {
		t.Error(err)
	}
}

// More changes than were asked for are refused.
func TestTreeChangesLimit(t *testing.T) {
	var lines []treediff.Line
	for i := range 12 {
		lines = append(lines, treediff.Line{Path: fmt.Sprintf("%02d", i), Status: treediff.Deleted, OldKind: treediff.Link})
	}
	text, answer := listOf(lines, treediff.Totals{Files: 12})
	for limit, ok := range map[int]bool{11: false, 12: true, 0: true, 1 << 30: true} {
		s, e := says(text, answer, 100)
		_, err := e.TreeChanges(t.Context(), client.DiffQuery{Limit: limit})
		var in struct{ Limit int }
		if (err == nil) != ok || json.Unmarshal(s.asked.Input, &in) != nil || in.Limit < 1 || in.Limit > MaxChanges {
			t.Errorf("limit %d: %v, asked for %d", limit, err, in.Limit)
		}
	}
}

// listing is an agent that lists paths as it is asked to.
type listing struct {
	saying
	paths []string // in order
}

func (l *listing) Run(ctx context.Context, r agent.Request, sink agent.Sink) (*agent.Outcome, error) {
	var in struct {
		After []byte
		Limit int
	}
	if err := json.Unmarshal(r.Input, &in); err != nil {
		return nil, err
	}
	from, known := slices.BinarySearch(l.paths, string(in.After))
	if known {
		from++
	}
	to := min(from+in.Limit, len(l.paths))
	var lines []treediff.Line
	for _, p := range l.paths[from:to] {
		lines = append(lines, treediff.Line{Path: string([]rune(p)), Bytes: []byte(p), Status: treediff.Deleted, OldKind: treediff.Link})
	}
	text, answer := listOf(lines, treediff.Totals{Files: len(l.paths), More: to < len(l.paths)})
	l.saying = saying{text: text, piece: 1 << 20, answer: agent.Outcome{Result: &run.Result{Output: answer}}}
	return l.saying.Run(ctx, r, sink)
}

// Pages of paths that are too long for a whole one are smaller, and have all of them.
func TestTreeChangesOfLongPaths(t *testing.T) {
	t.Parallel()
	l := &listing{}
	for i := range 4500 {
		l.paths = append(l.paths, fmt.Sprintf("%05d", i)+strings.Repeat("/"+strings.Repeat("\xff", 250), 16))
	}
	e := &Errand{Conn: l, NewID: func() string { return "c" }}
	seen, pages := 0, 0
	for q := (client.DiffQuery{Limit: MaxChanges}); ; pages++ {
		c, err := e.TreeChanges(t.Context(), q)
		if err != nil {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, item := range c.Items {
			if string(item.Bytes) != l.paths[seen] {
				t.Fatalf("%q is path %d", item.Bytes, seen)
			}
			seen++
		}
		if q.After = c.Next; q.After == "" {
			break
		}
	}
	if seen != len(l.paths) || pages < 1 {
		t.Errorf("%d paths on %d pages", seen, pages+1)
	}
}

// A stream goes to its writer byte by byte; the agent may forget what was written, and
// nothing more. It ends at its bound and where the writer fails.
func TestTreeDiff(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	s, e := says(text, `{"files":3,"added":1,"removed":2,"left_out":4}`, 64)
	var out bytes.Buffer
	totals, err := e.TreeDiff(t.Context(), run.DiffQuery{Format: treediff.Patch}, int64(len(text)), &out)
	if err != nil || out.String() != text || totals != (treediff.Totals{Files: 3, Added: 1, Removed: 2, LeftOut: 4}) ||
		s.acked != int64(len(text)) || s.asked.MaxOutput != int64(len(text))+1 {
		t.Errorf("%d bytes, %+v, %v, acknowledged %d", out.Len(), totals, err, s.acked)
	}
	s, e = says(text, `{}`, 64)
	if _, err := e.TreeDiff(t.Context(), run.DiffQuery{}, 100, &out); !errors.Is(err, ErrTooLong) || s.acked != 64 || !slices.Contains(s.gone, "aborted c") {
		t.Errorf("%v, acknowledged %d, %q", err, s.acked, s.gone)
	}
	s, e = says(text, `{}`, 64)
	if _, err := e.TreeDiff(t.Context(), run.DiffQuery{}, 0, &failing{left: 2}); !errors.Is(err, errFailing) || s.acked != 128 {
		t.Errorf("%v, acknowledged %d", err, s.acked)
	}
}

type failing struct{ left int }

var errFailing = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errFailing
	}
	return len(p), nil
}

// Whatever an agent says, a page has plain paths in order, and no more than were asked
// for; it does not depend on how the bytes are cut.
func FuzzTreeChanges(f *testing.F) {
	text, answer := listOf(honest(), treediff.Totals{Files: 7, Added: 1, More: true})
	f.Add(text, answer, uint64(1))
	f.Add("{}\n", "{}", uint64(2))
	f.Fuzz(func(t *testing.T, text, answer string, seed uint64) {
		const limit = 4
		_, e := says(text, answer, 1+rand.New(rand.NewPCG(seed, 0)).IntN(50))
		got, err := e.TreeChanges(t.Context(), client.DiffQuery{Limit: limit})
		_, e = says(text, answer, 1<<20)
		again, errAgain := e.TreeChanges(t.Context(), client.DiffQuery{Limit: limit})
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("%v in pieces, %v at once", err, errAgain)
		}
		if err != nil {
			return
		}
		last := ""
		for _, c := range got.Items {
			path := c.Path
			if c.Bytes != nil {
				path = string(c.Bytes)
			}
			if path <= last || !plainPath(path) || !utf8.ValidString(c.Path) || c.Status == "" {
				t.Errorf("%+v after %q", c, last)
			}
			last = path
		}
		if len(got.Items) > limit || len(again.Items) != len(got.Items) || got.Files < len(got.Items) {
			t.Errorf("%d items of %d", len(got.Items), got.Files)
		}
	})
}

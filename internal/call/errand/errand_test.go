package errand

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool/run"
)

func anyTarget(*run.Target) error { return nil }

func found(there bool) *run.Prepared {
	return &run.Prepared{Targets: []run.Target{{Path: "/w/f", Exists: there}}}
}

// Whatever the errand is, an answer that is no result is an error with the agent's words,
// and the agent forgets the call.
func TestNoResult(t *testing.T) {
	errands := map[string]func(e *Errand) error{
		"aside":   func(e *Errand) error { return e.Aside(t.Context()) },
		"changes": func(e *Errand) error { _, err := e.Changes(t.Context(), nil); return err },
		"make":    func(e *Errand) error { return e.Make(t.Context(), "f", "x", time.Second) },
		"file":    func(e *Errand) error { _, err := e.File(t.Context(), "f", 1, time.Second, anyTarget); return err },
		"revert":  func(e *Errand) error { _, err := e.TreeRevert(t.Context(), nil, ""); return err },
		"list":    func(e *Errand) error { _, err := e.TreeChanges(t.Context(), client.DiffQuery{}); return err },
		"compare": func(e *Errand) error {
			_, err := (&Formatter{Errand: *e}).diffed(t.Context(), &unformatted{file: "/w/f"})
			return err
		},
	}
	answers := map[string]struct {
		says agent.Outcome
		want string
	}{
		"an error":                {agent.Outcome{Err: run.Errorf(run.CodeInternal, "no such job"), Result: &run.Result{Output: "{}"}}, "no such job"},
		"nothing":                 {agent.Outcome{}, errNoAnswer.Error()},
		"a failure":               {agent.Outcome{Result: &run.Result{IsError: true, Output: "the disk\x00 is full"}}, "the disk\u2400 is full"},
		"a failure without words": {agent.Outcome{Result: &run.Result{IsError: true}}, errNoAnswer.Error()},
		"a long failure":          {agent.Outcome{Result: &run.Result{IsError: true, Output: strings.Repeat("x", maxNote+1)}}, strings.Repeat("x", maxNote) + "…"},
	}
	for name, do := range errands {
		for says, a := range answers {
			s := &saying{answer: a.says, prep: found(name != "make")}
			err := do(&Errand{Conn: s, NewID: func() string { return "c" }})
			if err == nil || !strings.HasSuffix(err.Error(), a.want) || !slices.Equal(s.gone, []string{"forgot c"}) {
				t.Errorf("%s, which says %s: %v, %q", name, says, err, s.gone)
			}
		}
		s := &saying{fails: context.DeadlineExceeded, prep: found(name != "make")}
		err := do(&Errand{Conn: s, NewID: func() string { return "c" }})
		if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(s.gone, []string{"aborted c", "forgot c"}) {
			t.Errorf("%s, which does not answer: %v, %q", name, err, s.gone)
		}
	}
}

// A file is read only where it is, may be what it turns out to be, and is not too long.
func TestFile(t *testing.T) {
	mayNot := errors.New("not this one")
	tests := map[string]struct {
		prep  *run.Prepared
		text  string
		check error
		want  string
		fails error
		asked bool // for the content
	}{
		"there":     {prep: found(true), text: "1234", want: "1234", asked: true},
		"empty":     {prep: found(true), asked: true},
		"too long":  {prep: found(true), text: "12345", fails: ErrTooLong, asked: true},
		"not there": {prep: found(false), text: "1234"},
		"refused":   {prep: found(true), text: "1234", check: mayNot, fails: mayNot},
		"nothing":   {prep: &run.Prepared{}, text: "1234"},
	}
	for name, tt := range tests {
		s := &saying{text: tt.text, piece: 3, prep: tt.prep, answer: agent.Outcome{Result: &run.Result{}}}
		e := &Errand{Conn: s, NewID: func() string { return "c" }}
		got, err := e.File(t.Context(), "f", 4, time.Second, func(*run.Target) error { return tt.check })
		if string(got) != tt.want || !errors.Is(err, tt.fails) || (s.asked.Tool != "") != tt.asked {
			t.Errorf("%s: %q, %v, asked for %q", name, got, err, s.asked.Tool)
		}
	}
	s := &saying{prep: &run.Prepared{Result: &run.Result{IsError: true, Output: "it is a directory"}}}
	if _, err := (&Errand{Conn: s, NewID: func() string { return "c" }}).File(t.Context(), "f", 4, time.Second, anyTarget); err == nil || err.Error() != "it is a directory" {
		t.Error(err)
	}
}

// What is there already is not written over.
func TestMake(t *testing.T) {
	for there, ok := range map[bool]bool{false: true, true: false} {
		s := &saying{prep: found(there), answer: agent.Outcome{Result: &run.Result{}}}
		err := (&Errand{Conn: s, NewID: func() string { return "c" }}).Make(t.Context(), "f", "x", time.Second)
		if (err == nil) != ok || (s.asked.Tool != "") != ok {
			t.Errorf("there %v: %v, asked for %q", there, err, s.asked.Tool)
		}
	}
}

// A formatter does not go on when its call has ended.
func TestFormatEnds(t *testing.T) {
	over := errors.New("the call was aborted")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &saying{fails: context.Canceled, before: func() { cancel(over) }}
	f := Formatter{
		Errand:  Errand{Conn: s, NewID: func() string { return "c" }},
		MayRead: func(string) policy.Verdict { return policy.Verdict{Action: policy.Deny} },
	}
	_, err := f.Format(ctx, &hook.Hook{Command: []string{"f"}}, "/w/f", time.Minute)
	if !errors.Is(err, over) || !slices.Equal(s.gone, []string{"aborted c", "forgot c"}) {
		t.Errorf("%v, %q", err, s.gone)
	}
}

// What an agent says of changed files is bounded and can be shown.
func TestChanges(t *testing.T) {
	list := func(n int, name string) string {
		b, _ := json.Marshal(slices.Repeat([]string{name}, n))
		return string(b)
	}
	long := strings.Repeat("x", maxSensitivePath+1)
	for text, want := range map[string]client.SensitiveChanges{
		`{}`: {},
		`{"sensitive": [".git/config"], "build": ["Makefile"], "more": 1}`: {Changed: []string{".git/config"}, Build: []string{"Makefile"}, More: 1},
		`{"sensitive": ["a\u001b[2J\n"], "unchecked": "\u001b"}`:           {Changed: []string{`"a\x1b[2J\n"`}, Unchecked: `"\x1b"`},
		`{"sensitive": ["` + long + `"]}`:                                  {Changed: []string{long[1:] + "…"}},
		`{"more": -7}`:                                                     {},
		`{"more": 9999999999999}`:                                          {More: 1 << 30},
		`{"build": ` + list(MaxSensitive+2, "b") + `}`:                     {Build: slices.Repeat([]string{"b"}, MaxSensitive), More: 2},
		`{"sensitive": ` + list(MaxSensitive+2, "b") + `, "more": 5}`:      {Changed: slices.Repeat([]string{"b"}, MaxSensitive), More: 7},
	} {
		_, e := says("", text, 1)
		got, err := e.Changes(t.Context(), nil)
		if err != nil || got.More != want.More || got.Unchecked != want.Unchecked || !slices.Equal(got.Changed, want.Changed) || !slices.Equal(got.Build, want.Build) {
			t.Errorf("%.100s: %+v, %v", text, got, err)
		}
	}
	_, e := says("", "[]", 1)
	if _, err := e.Changes(t.Context(), nil); !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
}

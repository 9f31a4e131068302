package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
)

// sessionRef checks the id, the name or the beginning of an id that the user gave, so
// that no other text becomes a part of a request's path.
func sessionRef(ref string) (string, error) {
	if strings.Trim(ref, ".") == "" || strings.ContainsAny(ref, "/%?#") {
		return "", usagef("%q is not the id or the name of a session; \"toolctl session list\" shows them", line(ref))
	}
	return ref, nil
}

// withSession does something with the session that ref means. The daemon knows
// sessions by their id, and live ones by their name; where it finds none, ref may be
// the name of one that has ended or the beginning of an id, and do is called a second
// time, with the id. So do must be repeatable where it ends with not_found. An empty
// ref is passed on: no session was asked for.
func (a *app) withSession(ctx context.Context, c *client.Client, ref string, do func(ref string) error) error {
	if ref == "" {
		return do("")
	}
	ref, err := sessionRef(ref)
	if err != nil {
		return err
	}
	if err = do(ref); !isNotFound(err) {
		return err
	}
	id, ferr := a.findSession(ctx, c, ref)
	switch {
	case ferr != nil:
		return ferr
	case id == "":
		return err // it is there: something else was not found
	}
	return do(id)
}

// session gives the session that ref means.
func (a *app) session(ctx context.Context, c *client.Client, ref string) (s *client.Session, err error) {
	err = a.withSession(ctx, c, ref, func(ref string) error {
		s, err = c.GetSession(ctx, ref)
		return err
	})
	return s, err
}

func isNotFound(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == client.CodeNotFound
}

// findSession looks for ref among the names of sessions that have ended and the
// beginnings of ids. "" without an error says that the daemon knows ref, or that it
// cannot be asked.
func (a *app) findSession(ctx context.Context, c *client.Client, ref string) (string, error) {
	var names []string
	for _, all := range []bool{false, true} { // live ones go first: fewer letters tell them apart
		sessions, err := listSessions(ctx, c, client.SessionQuery{All: all})
		if err != nil {
			return "", nil
		}
		ids := make([]string, len(sessions))
		for i, s := range sessions {
			if ids[i] = s.ID; s.ID == ref || s.Name == ref && !over(&s) {
				return "", nil
			}
			if s.Name != "" && !all {
				names = append(names, s.Name)
			}
		}
		if s := newestNamed(sessions, ref); s != nil {
			a.say("%s is the name of a session that has ended: %s, made %s ago", line(ref), line(s.ID), ago(s.Created, time.Now()))
			return s.ID, nil
		}
		if id, err := completeID(ref, "ses_", ids); id != "" || err != nil {
			return id, err
		}
	}
	if e := a.elsewhere(ctx, c, ref); e != nil {
		return "", e
	}
	what := fmt.Sprintf("no session is named %q%s", ref, didYouMean(ref, names))
	if strings.HasPrefix(ref, "ses_") {
		what = fmt.Sprintf("no session has an id that is %q or begins so", ref)
	}
	return "", &missingError{what, `"toolctl session list" shows the sessions, with --all also those that have ended`}
}

// over reports whether a session's name is free again.
func over(s *client.Session) bool {
	return s.State == client.SessionEnded || s.State == client.SessionLost
}

// newestNamed is the newest of the sessions of a name that have ended, nil for none.
func newestNamed(sessions []client.Session, name string) *client.Session {
	for i := range slices.Backward(sessions) {
		if s := &sessions[i]; s.Name == name && over(s) {
			return s
		}
	}
	return nil
}

// completeID gives the id that begins with ref; "" where none does. Where several do
// it is an error that names some. Every id begins with kind, which is not enough.
func completeID(ref, kind string, ids []string) (string, error) {
	if !strings.HasPrefix(ref, kind) {
		return "", nil
	}
	var found []string
	for _, id := range ids {
		if id == ref {
			return id, nil
		}
		if strings.HasPrefix(id, ref) {
			found = append(found, line(id))
		}
	}
	switch {
	case len(found) == 0:
		return "", nil
	case len(found) == 1 && ref != kind:
		return found[0], nil
	}
	return "", usagef("%s is the beginning of %s: %s; write more of it", line(ref), plural(len(found), "id"), firstFew(found, 3))
}

// withID does something with what an id or the beginning of one means. Where do finds
// nothing it is called a second time, with the one id of list that begins so.
func withID(ref, kind string, list func() ([]string, error), do func(id string) error) error {
	err := do(ref)
	if !isNotFound(err) {
		return err
	}
	ids, lerr := list()
	if lerr != nil {
		return err
	}
	id, lerr := completeID(ref, kind, ids)
	switch {
	case lerr != nil:
		return lerr
	case id == "" || id == ref:
		return err
	}
	return do(id)
}

// withCall is withID of the calls of a session.
func withCall(ctx context.Context, c *client.Client, session, ref string, do func(id string) error) error {
	if strings.Trim(ref, ".") == "" || strings.ContainsAny(ref, "/%?#") {
		return usagef("%q is not the id of a call; \"toolctl session logs --short %s\" shows them", line(ref), line(session))
	}
	list := func() ([]string, error) {
		calls, err := listCalls(ctx, c, session, client.CallQuery{})
		return namesOf(calls, func(x *client.Call) string { return x.ID }), err
	}
	return withID(ref, "call_", list, do)
}

// minShown is how much of an id is shown at least, without its kind: enough that
// sessions of the same hour differ.
const minShown = 8

// shortIDs cuts ids to what tells each apart from the others, and from others that may
// come.
func shortIDs(ids []string) []string {
	sorted := slices.Sorted(slices.Values(ids))
	sorted = slices.Compact(sorted)
	short := make([]string, len(ids))
	for i, id := range ids {
		at, _ := slices.BinarySearch(sorted, id)
		n := strings.IndexByte(id, '_') + 1 + minShown
		if at > 0 {
			n = max(n, common(id, sorted[at-1])+1)
		}
		if at+1 < len(sorted) {
			n = max(n, common(id, sorted[at+1])+1)
		}
		short[i] = id[:min(n, len(id))]
	}
	return short
}

// common counts the bytes that two texts begin with alike.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
)

// standing is a connection, or a request on one, that was allowed and is open.
type standing struct {
	text  string // host:port, or METHOD URL
	calls []string
	by    uint64 // the revision of the rules by which it was judged last
}

func (s *standing) permission() string {
	if strings.Contains(s.text, " ") {
		return policy.PermissionHTTP
	}
	return policy.PermissionNetwork
}

func (s *standing) request() policy.Request {
	input, _ := policy.OutgoingInput(s.permission(), s.text)
	all, _, _ := policy.Outgoing(s.permission(), input)
	return all[0]
}

// lives is a session of a random case, and what a test knows of it.
type lives struct {
	*house
	*rand.Rand
	t       *testing.T
	session *client.Session
	live    *Session
	running map[string]string          // the profiles of calls, by id
	once    map[string]map[string]bool // the calls for which something was allowed once, by its text
	open    []*standing
	log     []string
}

var standingProfiles = []string{"build", "strict", "other"}

func (l *lives) did(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

func (l *lives) pick(list ...string) string { return list[l.IntN(len(list))] }

// randomRules has rules for each profile: few hosts, so that they meet.
func (l *lives) randomRules() string {
	var b strings.Builder
	lines := func(prefix string) {
		for _, permission := range []string{"network", "http"} {
			fmt.Fprintf(&b, "[%spermission.%s]\n", prefix, permission)
			for i, host := range []string{"*.example", "a.example", "b.example"} {
				if permission == "http" {
					host = "* http://" + host + "/*"
				}
				if i == 0 || l.IntN(2) == 0 {
					fmt.Fprintf(&b, "%q = %q\n", host, l.pick("allow", "ask", "ask", "deny"))
				}
			}
		}
	}
	b.WriteString("[permission]\nbash = \"allow\"\n")
	lines("")
	for _, p := range standingProfiles[1:] {
		lines("profile." + p + ".")
	}
	return b.String()
}

func (l *lives) ids() []string {
	var all []string
	for id := range l.running {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

func (l *lives) outgoing(s *standing, standing bool) policy.Verdict {
	return l.live.calls.Outgoing(l.t.Context(), &call.Outgoing{Request: s.request(), Calls: s.calls, Exact: len(s.calls) == 1, Standing: standing})
}

// connect has a call want something, and somebody answer where that is asked about.
func (l *lives) connect() {
	ids := l.ids()
	if len(ids) == 0 {
		return
	}
	l.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	s := &standing{calls: ids[:1+l.IntN(min(2, len(ids)))], by: l.live.judge.Revision()}
	s.text = l.pick("a.example:443", "b.example:443", "c.example:443", "GET http://a.example/x", "GET http://c.example/x")
	verdict := make(chan policy.Verdict, 1)
	go func() { verdict <- l.outgoing(s, false) }()
	testrig.Eventually(l.t, "there is a verdict, or somebody is asked", func() bool { return len(verdict) == 1 || len(l.pending()) == 1 })
	answer := client.ApprovalAnswer{Answer: client.Answer(l.pick("once", "once", "once", "always", "reject"))}
	if all := l.pending(); len(all) == 1 {
		if answer.Answer == client.AnswerAlways {
			answer.Scope = client.Scope(l.pick("session", "profile"))
		}
		l.answer(&all[0], answer)
		if answer.Answer == client.AnswerOnce {
			if l.once[s.text] == nil {
				l.once[s.text] = make(map[string]bool)
			}
			l.once[s.text][all[0].CallID] = true
		}
		l.did("%s is answered %s %s", s.text, answer.Answer, answer.Scope)
	}
	if v := <-verdict; v.Action == policy.Allow {
		l.open = append(l.open, s)
		l.did("%q open %s", s.calls, s.text)
	}
}

func (l *lives) end() {
	ids := l.ids()
	if len(ids) == 0 {
		return
	}
	id := l.pick(ids...)
	l.did("%s ends", id)
	if _, err := l.m.calls.AbortCall(l.t.Context(), alice, id); err != nil {
		l.t.Fatal(err)
	}
	l.finished(id)
	delete(l.running, id)
	for _, calls := range l.once {
		delete(calls, id)
	}
}

func (l *lives) begin() {
	if len(l.running) == 3 {
		return
	}
	c := l.background(l.session.ID, "hold")
	l.running[c.ID] = l.live.Row().Profile
	l.did("%s begins with profile %s", c.ID, l.running[c.ID])
}

func (l *lives) patch() {
	profile := l.pick(standingProfiles...)
	l.did("the profile is %s", profile)
	if _, err := l.m.Patch(l.t.Context(), alice, l.session.ID, client.SessionPatch{Profile: &profile}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lives) reloads() {
	text := l.randomRules()
	l.did("a reload:\n%s", text)
	l.reload(func(s *Settings) { s.Policy = rules(l.t, text) })
}

func (l *lives) revoke() {
	p := auth.Principal{UID: 1, Tenant: l.session.Tenant}
	saved, err := l.m.Approvals.SavedApprovals(l.t.Context(), p, client.ApprovalQuery{})
	if err != nil {
		l.t.Fatal(err)
	}
	if len(saved.Items) == 0 {
		return
	}
	v := saved.Items[l.IntN(len(saved.Items))]
	l.did("%s for %s %s is revoked", v.Pattern, v.SessionID, v.Profile)
	if err := l.m.Approvals.Revoke(l.t.Context(), carol, v.ID); err != nil {
		l.t.Fatal(err)
	}
}

// explained says whether what is open stands as the rules are explained, for the profile of the first of
// its calls that runs, else for the session's.
func (l *lives) explained(s *standing) bool {
	profile := l.live.Row().Profile
	for _, id := range s.calls {
		if p := l.running[id]; p != "" {
			profile = p
			break
		}
	}
	input, _ := policy.OutgoingInput(s.permission(), s.text)
	v, err := l.m.Policy.Explain(l.t.Context(), alice, client.PolicyExplain{Tool: s.permission(), Input: input, Session: l.session.ID, Profile: profile})
	if err != nil {
		l.t.Fatal(err)
	}
	return v.Action == string(policy.Allow) || v.Action == string(policy.Ask) && len(l.once[s.text]) > 0
}

// check judges again what is open, and reports how much of it is cut.
func (l *lives) check() (cut int) {
	for _, s := range l.open {
		by := l.live.judge.Revision()
		stands, want := l.outgoing(s, true).Action == policy.Allow, l.explained(s)
		if stands != want {
			l.t.Errorf("%s of %q stands: %t, and is explained as %t", s.text, s.calls, stands, want)
		}
		if !want && by == s.by {
			l.t.Errorf("%s of %q does not stand, and nothing says that it is to be judged again", s.text, s.calls)
		}
		if s.by = by; !want {
			s.calls = nil
			cut++
		}
	}
	l.open = slices.DeleteFunc(l.open, func(s *standing) bool { return s.calls == nil })
	return cut
}

// TestStandsAsExplained: what is open stands as long as the rules that are explained say so, whoever's they
// are and whatever somebody has allowed once, or always and taken back; and where they do not any more, the
// revision has moved, so that it is judged again.
func TestStandsAsExplained(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	h.set.Policy = rules(t, "[permission]\nbash = \"allow\"\n")
	h.open()
	steps, opened, cut := 0, 0, 0
	for i := range testrig.Rounds(20) {
		l := &lives{house: h, Rand: random, t: t, running: make(map[string]string), once: make(map[string]map[string]bool)}
		l.reloads()
		l.session = h.create(alice, client.SessionCreate{Profile: l.pick(standingProfiles...)})
		l.live = h.m.live()[0]
		l.did("profile %s", l.session.Profile)
		l.begin()
		for range 25 {
			before := len(l.open)
			switch random.IntN(10) {
			case 0, 1:
				l.begin()
			case 2, 3:
				l.end()
			case 4:
				l.patch()
			case 5:
				l.reloads()
			case 6:
				l.revoke()
			default:
				l.connect()
			}
			steps, opened = steps+1, opened+max(0, len(l.open)-before)
			cut += l.check()
			if t.Failed() {
				t.Fatalf("seed %d, case %d:\n%s", seed, i, strings.Join(l.log, "\n"))
			}
		}
		for _, id := range l.ids() {
			if _, err := h.m.calls.AbortCall(t.Context(), alice, id); err != nil {
				t.Fatal(err)
			}
			h.finished(id)
		}
		if _, err := h.m.End(t.Context(), alice, l.session.ID, client.EndOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d: %d steps, %d opened, %d of these cut", seed, steps, opened, cut)
	if opened < steps/20 || cut < opened/10 {
		t.Errorf("seed %d: of %d steps %d opened something, and %d were cut: the cases say nothing", seed, steps, opened, cut)
	}
}

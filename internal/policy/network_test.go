package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/tool/run/readrule"
)

// TestNetworkHasToBeNamed: no wildcard of a permission's name opens or closes the network.
func TestNetworkHasToBeNamed(t *testing.T) {
	set, err := Parse("rules.toml", []byte(`[permission]
"*" = "allow"
"net*" = "allow"
"networ?" = "allow"
"h*" = "deny"
[profile.open.permission]
"*" = "allow"
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, profile := range []string{"build", "explore", "open"} {
		s, err := set.Stack(profile, "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ name, text, want string }{
			{PermissionNetwork, "example.com:443", "deny default"},
			{PermissionHTTP, "GET https://example.com/", "allow default"},
		} {
			v := s.Judge([]Request{requestOf(tt.name, tt.text)})
			if got := string(v.Action) + " " + v.Rule; got != tt.want {
				t.Errorf("%s: %s %s is %s, want %s", profile, tt.name, tt.text, got, tt.want)
			}
		}
	}
}

// TestNetworkPatternsAreChecked: what is no pattern of hosts is refused wherever rules come
// from.
func TestNetworkPatternsAreChecked(t *testing.T) {
	_, err := Parse("rules.toml", []byte(`[permission.network]
"https://example.com" = "allow"
"example.com/*" = "allow"
"api.example.com" = "allow"
[permission.http]
"https://example.com/*" = "allow"
[[rule]]
permission = "network"
pattern = "a*.example.com"
action = "allow"
[tenant.ci.permission.network]
"*.com*" = "deny"
`))
	for _, want := range []string{"rules.toml:2", "rules.toml:3", "rules.toml:6", "rules.toml:7", "rules.toml:12"} {
		if err == nil || !strings.Contains(err.Error(), want+":") {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "rules.toml:4:") {
		t.Errorf("%v", err)
	}
	if _, err := CheckRules("session", []client.RuleOf{{Permission: "network", Pattern: "a*", Action: "deny"}}); err == nil {
		t.Error("a session's rule is not checked")
	}
	if _, err := ParseCeiling("w", []byte("[permission.network]\n\"a*\" = \"deny\"\n")); err == nil {
		t.Error("a worktree's rule is not checked")
	}
}

func TestNetworkLint(t *testing.T) {
	set, err := Parse("rules.toml", []byte(`[permission.network]
"api.example.com" = "allow"
"*.example.com" = "deny"
"git.example.com:22" = "allow"
"db.example.com:5432" = "ask"
"*" = "allow"
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, w := range set.Warnings() {
		got = append(got, w.Line)
	}
	// The * on line 6 opens 80 and 443 only, so it undoes neither the ports nor the deny of
	// other ports.
	if want := []int{2}; !slices.Equal(got, want) {
		t.Errorf("warnings %v, want lines %v", set.Warnings(), want)
	}
}

func TestNetworkTests(t *testing.T) {
	_, err := Parse("rules.toml", []byte(`[permission.network]
"*.example.com" = "allow"
[[test]]
tool = "network"
input = { address = "API.example.com:443" }
expect = "allow"
rule = 'network "*.example.com"'
[[test]]
tool = "http"
input = { request = "GET https://example.com/" }
expect = "allow"
[[test]]
tool = "network"
input = { address = "example.com" }
expect = "deny"
[[test]]
tool = "network"
input = { address = "example.com:443", port = 1 }
expect = "deny"
[[test]]
tool = "network"
input = { address = "example.com:443" }
expect = "allow"
`))
	if err == nil {
		t.Fatal("the tests pass")
	}
	for _, want := range []string{"rules.toml:12: test: address: ", "rules.toml:16: test: the input of network", `network {"address":"example.com:443"} is deny by default (network "*"), want allow`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nhas no %q", err, want)
		}
	}
	if n := strings.Count(err.Error(), "test:"); n != 3 {
		t.Errorf("%d tests fail: %v", n, err)
	}
}

func TestPortsAndPrivate(t *testing.T) {
	s := stackOf(t, `[permission.network]
"*" = "allow"
"a.example:22" = "deny"
"b.example:5432" = "ask"
"10.0.0.0/8:*" = "allow"
"10.9.0.0/16" = "deny"
"192.168.1.1" = "ask"
`)
	if ports, every := s.Ports(); !every || !slices.Equal(ports, []uint16{80, 443, 5432}) {
		t.Errorf("ports %v, every %t", ports, every)
	}
	narrow := s.With(Ceiling{"session", []Rule{{Permission: "network", Pattern: "10.1.0.0/16", Action: Deny}}})
	for _, tt := range []struct {
		addr, want string
	}{
		{"10.2.0.1:99", "allow rules.toml:5"},
		{"10.9.0.1:99", "deny rules.toml:6"},
		{"10.1.0.1:99", "deny session"},
		{"127.0.0.1:80", "allow default"}, // "*" says nothing of what is dialled
		{"192.168.1.1:80", "ask rules.toml:7"},
		{"192.168.1.1:81", "allow default"},
		{"8.8.8.8:81", "allow default"},
	} {
		e, err := endpoint.Parse(tt.addr)
		if err != nil {
			t.Fatal(err)
		}
		q := Address(e)
		v := narrow.JudgeOne(&q)
		if got := string(v.Action) + " " + v.Rule; got != tt.want && (tt.want != "deny session" || v.Action != Deny) {
			t.Errorf("%s is %s, want %s", tt.addr, got, tt.want)
		}
	}
	saved := narrow.Remember([]Rule{{Permission: "network", Pattern: "192.168.1.1", Action: Allow}})
	e, _ := endpoint.Parse("192.168.1.1:80")
	if q := Address(e); saved.JudgeOne(&q).Action != Allow {
		t.Error("a saved approval for an address is not one for dialling it")
	}
}

// stackOf reads rules, for the default profile.
func stackOf(t *testing.T, rules string) *Stack {
	t.Helper()
	set, err := Parse("rules.toml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	s, err := set.Stack("build", "default")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLiteralIsDialled: a line with addresses decides about a literal address too, whatever "*" below
// it says.
func TestLiteralIsDialled(t *testing.T) {
	s := stackOf(t, "[permission.network]\n\"12.0.0.0/24\" = \"deny\"\n\"12.0.0.9\" = \"allow\"\n\"*\" = \"allow\"\n")
	for text, want := range map[string]Action{"12.0.0.5:443": Deny, "12.0.0.9:443": Allow, "12.0.1.5:443": Allow, "a.example:443": Allow} {
		if v := s.Judge([]Request{requestOf(PermissionNetwork, text)}); v.Action != want {
			t.Errorf("%s: %+v", text, v)
		}
	}
}

// embedded are the forms of IPv6 that lead to an address of IPv4, and what else each leads to.
var embedded = []struct {
	form string // of fmt, for the four bytes
	not  bool   // of their inverse
}{
	{form: "::%02x%02x:%02x%02x"},
	{form: "::ffff:%02x%02x:%02x%02x"},
	{form: "::ffff:0:%02x%02x:%02x%02x"},
	{form: "64:ff9b::%02x%02x:%02x%02x"},
	{form: "64:ff9b:1::%02x%02x:%02x%02x"},
	{form: "64:ff9b:1:aa:bb:cc:%02x%02x:%02x%02x"},
	{form: "64:ff9b:1:%02x%02x:%02x:%02x00::"},
	{form: "64:ff9b:1:%02x%02x:7f%02x:%02x12:3456:789a"},
	{form: "64:ff9b:1:11%02x:%02x:%02x%02x::"},
	{form: "64:ff9b:1:1122:%02x:%02x%02x:%02x00:0"},
	{form: "2002:%02x%02x:%02x%02x::1"},
	{form: "2001:0:%02x%02x:%02x%02x:8000:63bf:3fff:fdd2"},
	{form: "2001:0:4136:e378:8000:63bf:%02x%02x:%02x%02x", not: true},
	{form: "2001:db8::5efe:%02x%02x:%02x%02x"},
	{form: "2a00:1:2:3:200:5efe:%02x%02x:%02x%02x"},
	{form: "fe80::5efe:%02x%02x:%02x%02x"},
}

// embed are the addresses of all forms that lead to v4.
func embed(t *testing.T, v4 [4]byte) []netip.Addr {
	t.Helper()
	var all []netip.Addr
	for _, e := range embedded {
		b := v4
		for i := range b {
			if e.not {
				b[i] = ^b[i]
			}
		}
		a, err := netip.ParseAddr(fmt.Sprintf(e.form, b[0], b[1], b[2], b[3]))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// TestEmbedded: lines about an address of IPv4 hold for those of IPv6 that lead to it.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	s := stackOf(t, "[permission.network]\n\"*:*\" = \"allow\"\n\"[::/0]\" = \"allow\"\n\"12.0.0.0/24\" = \"deny\"\n\"12.0.1.0/24\" = \"ask\"\n\"12.0.1.9\" = \"allow\"\n")
	for v4, want := range map[[4]byte]Action{{12, 0, 0, 5}: Deny, {12, 0, 1, 5}: Ask, {12, 0, 1, 9}: Allow, {13, 0, 0, 5}: Allow} {
		for _, a := range embed(t, v4) {
			e := endpoint.Endpoint{Host: endpoint.HostOf(a), Port: 443}
			for _, q := range []Request{Address(e), Connection(e)} {
				if v := s.JudgeOne(&q); v.Action != want {
					t.Errorf("%s, of %v: %+v, want %s", a, v4, v, want)
				}
				// What somebody allows for good is that address, with all that it leads to.
				saved := []Rule{{Permission: PermissionNetwork, Pattern: q.Save}}
				if v := s.Remember(saved).JudgeOne(&q); v.Action == Ask {
					t.Errorf("%s with %s saved: %+v", a, q.Save, v)
				}
			}
		}
	}
	saved := []Rule{{Permission: PermissionNetwork, Pattern: "[64:ff9b::/96]"}}
	q := Address(endpoint.Endpoint{Host: endpoint.HostOf(netip.MustParseAddr("64:ff9b::c00:105")), Port: 443})
	if v := s.Remember(saved).JudgeOne(&q); v.Action != Ask {
		t.Errorf("what is saved for a whole gateway opens an address that is asked about: %+v", v)
	}
	// IPv6's own ::1 is not 0.0.0.1.
	s = stackOf(t, "[permission.network]\n\"[::/0]\" = \"allow\"\n\"0.0.0.0/8\" = \"deny\"\n")
	for text, want := range map[string]Action{"::1": Allow, "2001:db8::c00:5": Allow, "64:ff9c::c00:5": Allow, "64:ff9b:1::c00:5": Allow, "64:ff9b::5": Deny} {
		if q := Address(endpoint.Endpoint{Host: endpoint.HostOf(netip.MustParseAddr(text)), Port: 443}); s.JudgeOne(&q).Action != want {
			t.Errorf("%s: %+v, want %s", text, s.JudgeOne(&q), want)
		}
	}
}

// TestStrictestReading: the verdict on an address is the strictest of those on all that it may lead to.
func TestStrictestReading(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	v4 := func() [4]byte { return [4]byte{byte(r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(3))} }
	seen := make(map[Action]int)
	for range 300 {
		rules := "[permission.network]\n"
		for range 1 + r.IntN(5) {
			a := netip.AddrFrom4(v4())
			if r.IntN(3) == 0 {
				a = embed(t, v4())[r.IntN(len(embedded))].Unmap()
			}
			p := netip.PrefixFrom(a, r.IntN(a.BitLen()+1)).Masked().String()
			if a.Is6() {
				p = "[" + p + "]"
			}
			if !strings.Contains(rules, strconv.Quote(p)) && !strings.HasPrefix(p, "[::ffff:") {
				rules += strconv.Quote(p) + " = " + strconv.Quote([]string{"allow", "ask", "deny"}[r.IntN(3)]) + "\n"
			}
		}
		s := stackOf(t, rules)
		for _, a := range embed(t, v4()) {
			judge := func(a netip.Addr) Verdict {
				q := Address(endpoint.Endpoint{Host: endpoint.HostOf(a), Port: 443})
				return s.JudgeOne(&q)
			}
			want := Allow
			for _, r := range endpoint.Readings(a) {
				q := Address(endpoint.Endpoint{Host: endpoint.HostOf(r), Port: 443})
				if d := s.decideOne(&q); readrule.Strictness(d.action) > readrule.Strictness(want) {
					want = d.action
				}
			}
			if v := judge(a); v.Action != want {
				t.Errorf("%s: %+v, want %s by\n%s", a, v, want, rules)
			}
			seen[want]++
		}
	}
	if seen[Allow] < 100 || seen[Ask] < 100 || seen[Deny] < 100 {
		t.Errorf("verdicts %v", seen)
	}
}

// TestPlainReading: what denies some requests denies them as a lenient server reads them.
func TestPlainReading(t *testing.T) {
	s := stackOf(t, `[permission.http]
"* http://h.example/dir/*" = "deny"
"* http://h.example/secret*" = "deny"
"* http://h.example/q?admin=1*" = "deny"
"* http://h.example/exact" = "deny"
"* http://h.example/%E4%B8%AD*" = "deny"
"* http://h.example/star/%2A*" = "deny"
"* http://closed.example/*" = "deny"
"* http://closed.example/@scope%2Fpkg" = "allow"
"* http://closed.example/search?*" = "allow"
`)
	for text, want := range map[string]Action{
		"h.example/dir/x": Deny, "h.example/dir%2Fx": Deny, "h.example/dir%2fx": Deny, "h.example/dir%5Cx": Deny, "h.example/dir;a=b/x": Deny, "h.example/dir;/x": Deny,
		"H.Example:80//dir//x": Deny, "h.example/%2Fsecret": Deny, "h.example/%73ecret": Deny, "h.example/;/secret": Deny, "h.example:8080/%2Fsecret": Deny,
		"h.example/q?admin=1": Deny, "h.example/q?%61dmin=1": Deny, "h.example/q?admin%3D1": Deny, "h.example/q?admin=%31": Deny, "h.example/q;x?admin=1": Deny,
		"h.example/exact?": Deny, "h.example/exact;x": Deny, "h.example/%65xact?": Deny, "h.example/%e4%b8%adx": Deny,
		"h.example/star/%2Ax": Deny, "h.example/star/%2Ax?": Deny,
		"h.example/dirx": Allow, "h.example/exact?x": Allow, "h.example/star/x": Allow, "h.example/q?b=%20+": Allow, "h.example/a%2Fb;c": Allow,
		"closed.example/@scope%2fpkg": Allow, "closed.example/@scope/pkg": Deny, "closed.example/search?q=a%20b+c": Allow, "closed.example/x%2f..%2fy": "",
	} {
		requests, _, err := Outgoing(PermissionHTTP, requestInput("GET http://"+text))
		if err != nil {
			if want != "" {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if v := s.Judge(requests); v.Action != want {
			t.Errorf("%s is %s by %s, want %s", text, v.Action, v.Pattern, want)
		}
		if e := s.Explain(requests)[0]; e.Action != string(want) || want == Deny && !slices.ContainsFunc(e.Matches, func(m client.PolicyMatch) bool { return m.Winner && m.Action == e.Action }) {
			t.Errorf("%s is explained as %+v", text, e)
		}
	}
}

func requestInput(text string) json.RawMessage {
	in, _ := OutgoingInput(PermissionHTTP, text)
	return in
}

// TestSpelling: a path that no request has is a warning, with the one that is meant, and refused in a
// request to the API. What denies or asks is about that path, what allows is about none.
func TestSpelling(t *testing.T) {
	for path, want := range map[string]string{
		"/%e4%b8%ad*": `write "/%E4%B8%AD*"`, "/a%2fb*": `write "/a%2Fb*"`, "//x*": `write "/x*"`, "/./x*": `write "/x*"`, "/x/.": `write "/x/"`,
		"/%41*": `write "/A*"`, "/x/../up*": "no request has such a path", "/x%2*": "no request has such a path",
		"/x*": "", "/*": "", "/a%2Fb?c=%2f//*": "", "/.git/*": "", "/..*": "", "/v?/*": "",
	} {
		pattern := "* http://h.example" + path
		for _, action := range []string{"deny", "ask", "allow"} {
			set, err := Parse("rules.toml", []byte("[permission.http]\n\""+pattern+"\" = \""+action+"\"\n"))
			if err != nil {
				t.Fatal(err)
			}
			warnings := set.Warnings()
			if (len(warnings) == 0) != (want == "") || want != "" && (warnings[0].Line != 2 || !strings.Contains(warnings[0].Message, want) ||
				strings.Contains(warnings[0].Message, "allows nothing") != (action == "allow")) {
				t.Errorf("%s %s: %v, want %q", action, path, warnings, want)
			}
		}
		rules := []client.RuleOf{{Permission: "http", Pattern: pattern, Action: "deny"}}
		if err := CheckSpelling("session", rules); (err == nil) != (want == "") {
			t.Errorf("%s of a session: %v", path, err)
		}
		if _, err := CheckRules("session", rules); err != nil {
			t.Errorf("%s of a stored session: %v", path, err)
		}
	}
	rules, err := ParseCeiling("w", []byte("[permission.http]\n\"* http://h.example//x*\" = \"deny\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := stackOf(t, "").With(Ceiling{"worktree", rules})
	if v := s.Judge([]Request{requestOf(PermissionHTTP, "GET http://h.example//xy")}); v.Action != Deny {
		t.Errorf("%+v", v)
	}
	s = stackOf(t, `[permission.network]
"*" = "allow"
[permission.http]
"* http://h.example//x*" = "deny"
"* http://h.example/a%2fb" = "ask"
"* http://h.example/*" = "deny"
"* http://h.example//ok*" = "allow"
"* http://h.example/%%25" = "allow"
"* http://i.example//x*" = "deny"
"* http://i.example/a%2fb" = "ask"
"* https://j.example/*" = "deny"
"* https://j.example//*" = "allow"
`)
	for text, want := range map[string]Action{
		"http://h.example/ok": Deny, "http://h.example//ok": Deny, "http://h.example/%25": Deny, "http://i.example/xy": Deny, "http://i.example//xy": Deny,
		"http://i.example/a%2Fb": Ask, "http://i.example/a%2fb": Ask, "http://i.example/": Allow, "https://j.example/": Deny,
	} {
		if v := s.Judge([]Request{requestOf(PermissionHTTP, "GET "+text)}); v.Action != want {
			t.Errorf("%s: %+v, want %s", text, v, want)
		}
	}
	if v := s.Judge([]Request{requestOf(PermissionNetwork, "j.example:443")}); v.Action != Deny {
		t.Errorf("a line that allows nothing opens %+v", v)
	}
}

// TestAddressOfRequests: a line of http is about hosts as they are written; one with an address, or with
// what was meant for a CIDR, is a warning that says what to write.
func TestAddressOfRequests(t *testing.T) {
	for pattern, want := range map[string]string{
		"* http://12.0.0.5/secret*": `network for "12.0.0.5"`, "* http://10.0.0.0/8*": `network for "10.0.0.0/8"`, "GET http://10.1.0.0:8080/16/*": `network for "10.1.0.0/16"`,
		"* http://10.1.2.3/8": `network for "10.1.2.3"`, "* http://[2001:db8::]/32*": `network for "[2001:db8::/32]"`, "* http://[2001:db8::1]/": `network for "[2001:db8::1]"`,
		"* http://a.example/8*": "", "*": "", "* http://*/8": "",
	} {
		for _, action := range []Action{Deny, Ask, Allow} {
			set, err := Parse("rules.toml", []byte("[permission.http]\n\""+pattern+"\" = \""+string(action)+"\"\n"))
			if err != nil {
				t.Fatal(err)
			}
			want := want
			if action == Allow && !strings.Contains(want, "/") {
				want = "" // it says what it opens
			}
			if got := set.Warnings(); (len(got) == 0) != (want == "") || want != "" && !strings.Contains(got[0].Message, want) {
				t.Errorf("%s %s: %v, want %q", action, pattern, got, want)
			}
		}
	}
}

// TestDoubts: rules of a session or a worktree that cannot do what they say have their warnings.
func TestDoubts(t *testing.T) {
	rules, err := CheckRules("session", []client.RuleOf{
		{Permission: "bash", Pattern: "git *", Action: "deny"},
		{Permission: "http", Pattern: "* https://a.example/*", Action: "deny"},
		{Permission: "http", Pattern: "* http://a.example/*", Action: "deny"},
		{Permission: "http", Pattern: "* http://10.0.0.0/8*", Action: "deny"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := Doubts(rules)
	if len(got) != 2 || !strings.HasPrefix(got[0], `session rule 2: http "* https://a.example/*" is about https`) || !strings.HasPrefix(got[1], "session rule 4: ") {
		t.Errorf("%q", got)
	}
}

// TestExplainedHTTPS: a request by https is explained as what holds for the connection, with the line that
// closes it; tests that an earlier version passed by the text of such a request are warnings.
func TestExplainedHTTPS(t *testing.T) {
	const rules = `[permission.network]
"*" = "allow"
"*:8443" = "allow"
[permission.http]
"*" = "deny"
"* https://closed.example/*" = "ask"
"* https://closed.example/ok/*" = "allow"
"* http://only.example:8443/*" = "allow"
`
	s := stackOf(t, rules)
	for text, want := range map[string]string{
		"http GET https://closed.example/ok/x": "deny rules.toml:6", "http GET https://closed.example/": "deny rules.toml:6", "http GET https://a.example/x": "allow default",
		"http GET https://only.example/": "allow default", "http GET https://only.example:8443/": "deny rules.toml:8", "http GET https://a.example:80/": "deny default",
		"http GET http://a.example/": "deny rules.toml:5", "network closed.example:443": "deny rules.toml:6",
	} {
		permission, what, _ := strings.Cut(text, " ")
		q := requestOf(permission, what)
		e := s.Explain([]Request{q})[0]
		if got := e.Action + " " + e.Rule; got != want || string(s.JudgeOne(&q).Action) != e.Action {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		var winners []string
		for _, m := range e.Matches {
			if m.Winner {
				winners = append(winners, m.Source)
			}
		}
		if _, rule, _ := strings.Cut(want, " "); rule != SourceDefault && !slices.Equal(winners, []string{rule}) || rule == SourceDefault && winners != nil {
			t.Errorf("%s: the winners are %q, want %s", text, winners, want)
		}
	}
	try := func(tool, request, expect string) (warnings int, err error) {
		set, err := Parse("rules.toml", []byte(rules+"[[test]]\ntool = \""+tool+"\"\ninput = "+request+"\nexpect = \""+expect+"\"\n"))
		if err != nil {
			return 0, err
		}
		for _, w := range set.Warnings() {
			if strings.Contains(w.Message, "test: ") {
				warnings++
			}
		}
		return warnings, nil
	}
	for _, tt := range []struct {
		tool, request, expect string
		warnings              int
		fails                 bool
	}{
		{"http", `{request = "GET https://closed.example/ok/x"}`, "allow", 1, false},
		{"http", `{request = "GET https://closed.example/x"}`, "ask", 1, false},
		{"http", `{request = "GET https://closed.example/x"}`, "allow", 0, true},
		{"http", `{request = "GET https://closed.example/x"}`, "deny", 0, false},
		{"http", `{request = "GET https://a.example/x"}`, "deny", 1, false},
		{"network", `{address = "closed.example:443"}`, "allow", 1, false},
		{"network", `{address = "closed.example:443"}`, "ask", 0, true},
		{"http", `{request = "GET http://a.example/x"}`, "allow", 0, true},
	} {
		if n, err := try(tt.tool, tt.request, tt.expect); n != tt.warnings || (err != nil) != tt.fails {
			t.Errorf("%+v: %d warnings, %v", tt, n, err)
		}
	}
}

// TestHTTPSIsNotRead: a rule that asks about some requests by https, or denies them, closes the
// connection, and says so when it is read.
func TestHTTPSIsNotRead(t *testing.T) {
	set, err := Parse("rules.toml", []byte(`[permission.network]
"*" = "allow"
"*.example:*" = "allow"
[permission.http]
"* https://closed.example/*" = "deny"
"* https://closed.example/ok/*" = "allow"
"POST *://both.example/*" = "ask"
"GET https://port.example:8443/*" = "deny"
"* https://again.example/x*" = "deny"
"* https://again.example/*" = "allow"
"* https://fine.example/*" = "allow"
"* http://plain.example/*" = "deny"
"* http://here.example:443/*" = "allow"
"* http://every.example:*/*" = "allow"
`))
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, w := range set.Warnings() {
		lines = append(lines, w.Line)
	}
	if want := []int{5, 6, 7, 8, 9, 10, 11, 13}; !slices.Equal(lines, want) {
		t.Errorf("warnings %v, want lines %v", set.Warnings(), want)
	}
	s, err := set.Stack("build", "default")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Action{
		"closed.example:443": Deny, "closed.example:22": Allow, "closed.example:80": Allow, "both.example:443": Deny, "both.example:80": Allow,
		"port.example:8443": Deny, "port.example:443": Allow, "again.example:443": Allow, "fine.example:443": Allow, "plain.example:443": Allow, "plain.example:80": Allow,
	} {
		if v := s.Judge([]Request{requestOf(PermissionNetwork, text)}); v.Action != want || want == Deny && !strings.Contains(v.Reason, "cannot be read") {
			t.Errorf("%s: %+v, want %s", text, v, want)
		}
	}
	for text, want := range map[string]string{
		"closed.example:22": "tls requests", "both.example:80": "requests only", "plain.example:80": "requests only", "plain.example:22": "requests", "fine.example:22": "requests", "here.example:443": "requests port only", "every.example:443": "requests only", "x.example:80": "requests",
	} {
		e, _ := endpoint.Parse(text)
		r := s.Reads(e)
		var got []string
		for word, on := range map[string]bool{"requests": r.Requests, "only": r.Only, "port": r.ByPort, "tls": r.TLS != nil} {
			if on {
				got = append(got, word)
			}
		}
		slices.Sort(got)
		slices.Reverse(got)
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%s is read as %q, want %q", text, g, want)
		}
	}
	// "*" is about what can be read.
	s = stackOf(t, "[permission.network]\n\"*\" = \"allow\"\n[permission.http]\n\"*\" = \"deny\"\n")
	if v := s.Judge([]Request{requestOf(PermissionNetwork, "a.example:443")}); v.Action != Allow {
		t.Errorf("%+v", v)
	}
}

// TestPortsOfTLS: the ports of [network] tls are as 443 for all that is explained.
func TestPortsOfTLS(t *testing.T) {
	const rules = `[network]
tls = [8443, 80, 8444]
[permission.network]
"*:*" = "allow"
[permission.http]
"* http://only.example:*/*" = "allow"
"* http://plain.example:8443/*" = "ask"
"* https://closed.example:*/closed*" = "deny"
"* *://both.example:*/x*" = "deny"
`
	set, err := Parse("rules.toml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	if w := set.Warnings(); len(w) != 3 || w[0].Line != 7 || !strings.Contains(w[0].Message, "plain HTTP on port 8443") {
		t.Errorf("%v", w)
	}
	s, err := set.Stack("build", "default")
	if err != nil {
		t.Fatal(err)
	}
	const setting = "deny [network] tls"
	for text, want := range map[string]string{
		"http GET http://only.example:8443/":   setting, // nothing but TLS passes there
		"http GET http://only.example/":        setting,
		"http GET https://only.example:8443/":  "allow default",
		"http GET https://only.example:9000/":  "deny rules.toml:6",
		"http GET http://open.example:443/":    setting,
		"http GET http://open.example:9000/":   "allow default",
		"http GET http://plain.example:8443/":  "ask rules.toml:7", // the rule has the port's number
		"http GET https://plain.example:8443/": "deny rules.toml:7",
		"http GET https://open.example:80/":    "allow default",
		"http GET https://closed.example:80/":  "deny rules.toml:8",
		"network closed.example:8443":          "deny rules.toml:8",
		"network both.example:8444":            "deny rules.toml:9", // it would have to be https
		"network both.example:80":              "deny rules.toml:9",
		"network both.example:9000":            "allow rules.toml:4",
		"network open.example:8444":            "allow rules.toml:4",
	} {
		permission, what, _ := strings.Cut(text, " ")
		q := requestOf(permission, what)
		e := s.Explain([]Request{q})[0]
		if got := e.Action + " " + e.Rule; got != want || string(s.JudgeOne(&q).Action) != e.Action {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]bool{"a.example:80": true, "a.example:443": true, "a.example:8444": true, "a.example:9000": false, "plain.example:8443": false} {
		e, _ := endpoint.Parse(text)
		if got := s.Reads(e).OnlyTLS; got != want {
			t.Errorf("%s: nothing but TLS passes: %t", text, got)
		}
	}
	// A file that an earlier version took loads.
	set, err = Parse("rules.toml", []byte(rules+"[[test]]\ntool = \"http\"\ninput = { request = \"GET http://open.example:8444/\" }\nexpect = \"allow\"\n"))
	if err != nil || !strings.Contains(fmt.Sprint(set.Warnings()), "nothing but TLS passes") {
		t.Errorf("%v", err)
	}
}

// TestSavedForTheHost: an answer of always is for the host: on 80 and 443, or on its port, and with the method of
// a request, whatever its path.
func TestSavedForTheHost(t *testing.T) {
	for _, tt := range []struct{ asked, save, too, not string }{
		{"network a.example:443", "a.example", "network a.example:80", "network a.example:22"},
		{"network A.Example.:22", "a.example:22", "network a.example:22", "network a.example:443"},
		{"network 10.1.1.1:5432", "10.1.1.1:5432", "network 10.1.1.1:5432", "network 10.1.1.2:5432"},
		{"network [2001:db8::1]:80", "[2001:db8::1]", "network [2001:db8::1]:443", "network [2001:db8::1]:22"},
		{"http GET http://a.example/x/y?z=1", "GET http://a.example/*", "http GET http://a.example/other", "http POST http://a.example/x/y?z=1"},
		{"http POST http://a.example:8080/%2Fx", "POST http://a.example:8080/*", "http POST http://a.example:8080/", "http POST http://a.example/"},
	} {
		of := func(text string) Request {
			permission, what, _ := strings.Cut(text, " ")
			return requestOf(permission, what)
		}
		asked := of(tt.asked)
		if asked.Save != tt.save {
			t.Errorf("%s saves %q, want %q", tt.asked, asked.Save, tt.save)
		}
		s := stackOf(t, "[permission.network]\n\"*:*\" = \"ask\"\n[permission.http]\n\"*\" = \"ask\"\n").Remember([]Rule{{Permission: asked.Permission, Pattern: asked.Save}})
		for text, want := range map[string]Action{tt.asked: Allow, tt.too: Allow, tt.not: Ask} {
			q := of(text)
			if v := s.JudgeOne(&q); v.Action != want {
				t.Errorf("%s saved: %s is %s, want %s", tt.save, text, v.Action, want)
			}
		}
	}
}

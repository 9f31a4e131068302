package policy

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
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
	set, err := Parse("rules.toml", []byte(`[permission.network]
"*" = "allow"
"a.example:22" = "deny"
"b.example:5432" = "ask"
"10.0.0.0/8:*" = "allow"
"10.9.0.0/16" = "deny"
"192.168.1.1" = "ask"
`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := set.Stack("build", "default")
	if err != nil {
		t.Fatal(err)
	}
	if ports, every := s.Ports(); !every || !slices.Equal(ports, []uint16{80, 443, 5432}) {
		t.Errorf("ports %v, every %t", ports, every)
	}
	narrow := s.With(Ceiling{"session", []Rule{{Permission: "network", Pattern: "10.1.0.0/16", Action: Deny}}})
	for _, tt := range []struct {
		addr  string
		port  uint16
		asked bool
		want  bool
	}{
		{"10.2.0.1", 99, false, true},
		{"10.9.0.1", 99, false, false},
		{"10.1.0.1", 99, false, false},  // by the session
		{"127.0.0.1", 80, false, false}, // "*" opens nothing that is private
		{"192.168.1.1", 80, false, false},
		{"192.168.1.1", 80, true, true},
		{"192.168.1.1", 81, true, false},
	} {
		if got := narrow.Opens(netip.MustParseAddr(tt.addr), tt.port, tt.asked); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

// TestPrivateIsOpens: the pieces are just the addresses that Opens gives.
func TestPrivateIsOpens(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	prefix := func() string {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.UintN(256))})
		p, _ := a.Prefix(24 + random.IntN(9))
		return p.String()
	}
	for range 200 {
		var list, narrow []Rule
		for range 6 {
			list = append(list, Rule{Permission: "network", Pattern: prefix() + ":*", Action: []Action{Allow, Allow, Ask, Deny}[random.IntN(4)]})
			narrow = append(narrow, Rule{Permission: "network", Pattern: prefix(), Action: []Action{Allow, Allow, Allow, Deny}[random.IntN(4)]})
		}
		s := (&Stack{list: compileAll(list)}).With(Ceiling{"session", narrow})
		open := s.Private(99)
		for i := range 256 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			got := slices.ContainsFunc(open, func(p netip.Prefix) bool { return p.Contains(a) })
			if want := s.Opens(a, 99, false); got != want {
				t.Fatalf("%s: %t, want %t\nrules %+v\nceiling %+v\npieces %v", a, got, want, list, narrow, open)
			}
		}
	}
}

package endpoint

import (
	"net/netip"
	"net/url"
	"path"
	"strings"
	"testing"
)

// TestParse is the table of confusions: what else programs take for a host, and what rules
// take it for. "" is a refusal.
func TestParse(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		// The spelling of names.
		{"api.example.com:443", "api.example.com:443"},
		{"API.Example.COM:443", "api.example.com:443"},
		{"api.example.com.:443", "api.example.com:443"},
		{"api.example.com..:443", ""},
		{".example.com:443", ""},
		{"api..example.com:443", ""},
		{"localhost:80", "localhost:80"},
		{"my_db.internal:5432", "my_db.internal:5432"},
		{"-a.example.com:443", ""},
		{"a-.example.com:443", ""},
		{strings.Repeat("a", 63) + ".example:1", strings.Repeat("a", 63) + ".example:1"},
		{strings.Repeat("a", 64) + ".example:1", ""},
		{strings.Repeat("a.", 126) + "a:1", strings.Repeat("a.", 126) + "a:1"},
		{strings.Repeat("a.", 127) + "a:1", ""},
		{strings.Repeat("a", 5000) + ":1", ""},
		// Unicode.
		{"bücher.example:443", "xn--bcher-kva.example:443"},
		{"BÜCHER.example:443", "xn--bcher-kva.example:443"},
		{"bu\u0308cher.example:443", "xn--bcher-kva.example:443"},
		{"xn--bcher-kva.example:443", "xn--bcher-kva.example:443"},
		{"XN--BCHER-KVA.example:443", "xn--bcher-kva.example:443"},
		{"xn--a.example:443", ""},                                          // no punycode
		{"xn--example-.com:443", ""},                                       // of ASCII alone
		{"straße.example:443", "xn--strae-oqa.example:443"},                // not strasse
		{"\u0430pple.com:443", "xn--pple-43d.com:443"},                     // Cyrillic а
		{"ｇｏｏｇｌｅ.com:443", "google.com:443"},                               // full width
		{"example。com:443", "example.com:443"},                             // ideographic full stop
		{"example．com:443", "example.com:443"},                             // full width stop
		{"example｡com:443", "example.com:443"},                             // half width stop
		{"ⓔxample.com:443", "example.com:443"},                             // circled
		{"exa\u00admple.com:443", "example.com:443"},                       // soft hyphen
		{"exa\u200bmple.com:443", "example.com:443"},                       // zero width space
		{"exa\u200dmple.com:443", ""},                                      // joiner without its context
		{"exa\u202emple.com:443", ""},                                      // right-to-left override
		{"good.example⁄evil.com:443", "good.xn--exampleevil-lx3f.com:443"}, // fraction slash
		{"good.com／.evil.com:443", ""},                                     // full width slash
		{"good.com？evil.com:443", ""},                                      // full width question mark
		{"good.com＠evil.com:443", ""},                                      // full width at
		{"good.com：80:443", ""},                                            // full width colon
		{"\u2488evil.com:443", ""},                                         // "1." as one character
		{"\xff.example.com:443", ""},
		// Characters that end or divide a host elsewhere.
		{"good.com@169.254.169.254:80", ""},
		{"user:pass@good.com:80", ""},
		{"good.com/evil.com:443", ""},
		{"good.com\\evil.com:443", ""},
		{"good.com?evil.com:443", ""},
		{"good.com#evil.com:443", ""},
		{"good.com%2eevil.com:443", ""},
		{"good.com\x00.evil.com:443", ""},
		{"good.com\r\nHost: evil.com:443", ""},
		{"good.com evil.com:443", ""},
		{" good.com:443", ""},
		{"good.com :443", ""},
		{"*.example.com:443", ""},
		{"good.com,evil.com:443", ""},
		{"", ""},
		{":443", ""},
		{".:443", ""},
		// IPv4.
		{"192.0.2.1:80", "192.0.2.1:80"},
		{"192.0.2.1.:80", "192.0.2.1:80"},
		{"2130706433:80", "127.0.0.1:80"},
		{"0x7f000001:80", "127.0.0.1:80"},
		{"0X7F.1:80", "127.0.0.1:80"},
		{"0x7f.1:80", "127.0.0.1:80"},
		{"0177.1:80", "127.0.0.1:80"},
		{"017700000001:80", "127.0.0.1:80"},
		{"127.1:80", "127.0.0.1:80"},
		{"127.0.1:80", "127.0.0.1:80"},
		{"127.00.0x0.01:80", "127.0.0.1:80"},
		{"010.0.0.1:80", "8.0.0.1:80"},
		{"0:80", "0.0.0.0:80"},
		{"１２７.０.０.１:80", "127.0.0.1:80"},
		{"①②⑦.0.0.1:80", "127.0.0.1:80"},
		{"256.0.0.1:80", ""},
		{"1.2.3.4.5:80", ""},
		{"4294967296:80", ""},
		{"08.0.0.1:80", ""},
		{"0x:80", ""},
		{"1.2.3.0xg:80", "1.2.3.0xg:80"}, // a name: no program reads a number in it
		{"example.0x1:80", ""},
		{"example.1:80", ""},
		{"-1:80", ""},
		{"1e3:80", "1e3:80"},
		// IPv6.
		{"[2001:DB8::1]:443", "[2001:db8::1]:443"},
		{"[2001:db8:0:0:0:0:0:1]:443", "[2001:db8::1]:443"},
		{"[::ffff:10.0.0.1]:443", "10.0.0.1:443"},
		{"[::ffff:a00:1]:443", "10.0.0.1:443"},
		{"[::1]:80", "[::1]:80"},
		{"[fe80::1%eth0]:80", ""},
		{"[fe80::1%25eth0]:80", ""},
		{"2001:db8::1:443", ""},
		{"[192.0.2.1]:80", ""},
		{"[example.com]:80", ""},
		{"[2001:db8::1:443", ""},
		{"[2001:db8::1]x:443", ""},
		{"[v1.x]:80", ""},
		// Ports.
		{"example.com", ""},
		{"example.com:", ""},
		{"example.com:0", ""},
		{"example.com:080", ""},
		{"example.com:+80", ""},
		{"example.com:65536", ""},
		{"example.com:80:80", ""},
		{"example.com:８０", ""},
		{"example.com:http", ""},
	} {
		e, err := Parse(tt.text)
		got := ""
		if err == nil {
			got = e.String()
		}
		if got != tt.want {
			t.Errorf("%q is %q (%v), want %q", tt.text, got, err, tt.want)
		}
		if err != nil && (len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\x00\r\n\u202e")) {
			t.Errorf("%q is refused with %q", tt.text, err)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern   string
		opens     bool
		yes, no   string // endpoints, divided by blanks
		shadowing string // patterns that it covers
	}{
		{"example.com", true, "example.com:80 example.com:443 EXAMPLE.com.:443", "example.com:22 a.example.com:443 evilexample.com:443 example.com.evil:443", "example.com:443"},
		{"example.com", false, "example.com:80 example.com:22", "a.example.com:443", ""},
		{"*.example.com", true, "a.example.com:443 a.b.example.com:80", "example.com:443 evilexample.com:443 a.example.com.evil:443 a.example.com:8443", "a.example.com *.a.example.com"},
		{"git.example.com:22", true, "git.example.com:22", "git.example.com:443", ""},
		{"build.example.com:*", true, "build.example.com:1 build.example.com:443", "example.com:1", "build.example.com build.example.com:22"},
		{"*", true, "a:80 192.0.2.1:443 [2001:db8::1]:80", "a:22", "x *.x 10.0.0.0/8"},
		{"*", false, "a:80 a:22 [2001:db8::1]:22", "", "x *.x *:22"},
		{"*:5432", true, "a:5432", "a:443", "x:5432"},
		{"10.20.0.0/16", true, "10.20.0.1:443 [::ffff:10.20.255.255]:80", "10.21.0.1:443 10.20.0.1:22 a.10-20.example:80", "10.20.1.0/24"},
		{"10.20.0.0/16:*", true, "10.20.0.1:5432", "10.21.0.1:5432", ""},
		{"192.0.2.1", true, "192.0.2.1:80 3221225985:443", "192.0.2.2:80", ""},
		{"[2001:db8::/32]", true, "[2001:db8::1]:443", "[2001:db9::1]:443 192.0.2.1:443", "[2001:db8::1]"},
		{"[2001:db8::1]:8443", true, "[2001:db8::1]:8443", "[2001:db8::1]:443", ""},
		{"0.0.0.0/0", true, "192.0.2.1:80", "[2001:db8::1]:80 a:80", ""},
		{"xn--bcher-kva.example", true, "bücher.example:443", "bucher.example:443", ""},
	} {
		p, err := ParsePattern(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		for want, all := range map[bool]string{true: tt.yes, false: tt.no} {
			for text := range strings.FieldsSeq(all) {
				e, err := Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if got := p.Match(e, tt.opens); got != want {
					t.Errorf("%s (opens %t) about %s: %t, want %t", tt.pattern, tt.opens, text, got, want)
				}
			}
		}
		for text := range strings.FieldsSeq(tt.shadowing) {
			q, err := ParsePattern(text)
			if err != nil {
				t.Fatal(err)
			}
			if !p.Covers(tt.opens, q, tt.opens) || q.Covers(tt.opens, p, tt.opens) && text != tt.pattern {
				t.Errorf("%s must cover %s, and not the other way round", tt.pattern, text)
			}
		}
	}
}

// TestPatternRefused are patterns that somebody may take for something that they are not.
func TestPatternRefused(t *testing.T) {
	for _, tt := range []struct{ pattern, hint string }{
		{"", "empty"},
		{"https://example.com", "URL"},
		{"example.com/path", "no path"},
		{"example.com/*", "no path"},
		{"**.example.com", "*.example.com"},
		{"api*.example.com", "*.example.com"},
		{"*example.com", "*.example.com"},
		{"a.*.com", "*.example.com"},
		{"example.*", "*.example.com"},
		{"example.com.", `write "example.com"`},
		{"Example.com", `write "example.com"`},
		{"bücher.example", `write "xn--bcher-kva.example"`},
		{"*.", "empty"},
		{"*.*", "*.example.com"},
		{"exampl?.com", "*.example.com"},
		{"user@example.com", "letters"},
		{" example.com", "letters"},
		{"2130706433", `write "127.0.0.1"`},
		{"010.0.0.1", `write "8.0.0.1"`},
		{"*.10.0.0.1", "CIDR"},
		{"10.0.0", `write "10.0.0.0"`},
		{"10.0.0.1/8", `write "10.0.0.0/8"`},
		{"10.0.0.0/33", "CIDR"},
		{"10.0.0.*", "*.example.com"},
		{"2001:db8::1", "brackets"},
		{"2001:db8::/32", "brackets"},
		{"[2001:DB8::1]", `write "2001:db8::1"`},
		{"[::ffff:10.0.0.1]", `write "10.0.0.1"`},
		{"[::ffff:10.0.0.0/104]", "IPv4"},
		{"[example.com]", "brackets"},
		{"[2001:db8::1", "brackets"},
		{"[2001:db8::1]443", "brackets"},
		{"[fe80::1%eth0]", "zone"},
		{"example.com:", "port"},
		{"example.com:0", "port"},
		{"example.com:https", "port"},
		{"example.com:80-90", "port"},
		{"example.com:**", "port"},
		{"example.com:65536", "port"},
	} {
		_, err := ParsePattern(tt.pattern)
		if err == nil || !strings.Contains(err.Error(), tt.hint) {
			t.Errorf("%q: %v, want a refusal with %q", tt.pattern, err, tt.hint)
		}
	}
}

func TestParseRequest(t *testing.T) {
	for _, tt := range []struct{ method, url, want string }{
		{"GET", "https://Example.com", "GET https://example.com/"},
		{"GET", "https://example.com:443/a", "GET https://example.com/a"},
		{"GET", "http://example.com:443/a", "GET http://example.com:443/a"},
		{"GET", "HTTP://example.com:80", "GET http://example.com/"},
		{"GET", "https://example.com?q=1", "GET https://example.com/?q=1"},
		{"GET", "https://example.com//a///b", "GET https://example.com/a/b"},
		{"GET", "https://example.com/%61%2d%2Fx%c3%A9", "GET https://example.com/a-%2Fx%C3%A9"},
		{"GET", "http://0x7f.1/x", "GET http://127.0.0.1/x"},
		{"GET", "http://[::1]/x", "GET http://[::1]/x"},
		{"GET", "http://[::1]:8080/x", "GET http://[::1]:8080/x"},
		{"GET", "http://::1/x", ""},
		{"get", "https://example.com/", ""},
		{"GET ", "https://example.com/", ""},
		{"", "https://example.com/", ""},
		{"GET", "ftp://example.com/", ""},
		{"GET", "file:///etc/passwd", ""},
		{"GET", "unix:/run/x", ""},
		{"GET", "/path", ""},
		{"GET", "https:///x", ""},
		{"GET", "https://good.example@169.254.169.254/", ""},
		{"GET", "https://good.example%2eevil.com/", ""},
		{"GET", "https://good.example\\evil.com/", ""},
		{"GET", "https://good.example/a\\..\\b", ""},
		{"GET", "https://good.example/#f", ""},
		{"GET", "https://good.example/a b", ""},
		{"GET", "https://good.example/\r\nHost: x", ""},
		{"GET", "https://good.example/é", ""},
		{"GET", "https://good.example/acme/../other", ""},
		{"GET", "https://good.example/acme/%2e%2e/other", ""},
		{"GET", "https://good.example/acme/.%2E/other", ""},
		{"GET", "https://good.example/acme%2f..%2fother", ""},
		{"GET", "https://good.example/acme%5c..%5Cother", ""},
		{"GET", "https://good.example/acme/..;x=1/other", ""},
		{"GET", "https://good.example/./x", "GET https://good.example/x"},
		{"GET", "https://good.example/a/././/.//b/./c", "GET https://good.example/a/b/c"},
		{"GET", "https://good.example/a/%2E/b/%2e", "GET https://good.example/a/b/"},
		{"GET", "https://good.example/.", "GET https://good.example/"},
		{"GET", "https://good.example/a/.?b=/./c", "GET https://good.example/a/?b=/./c"},
		{"GET", "https://good.example/./.git/.a./..b", "GET https://good.example/.git/.a./..b"},
		{"GET", "https://good.example/a/./../secret", ""},
		{"GET", "https://good.example/a/.%2e/secret", ""},
		{"GET", "https://good.example/a/.%2Fsecret", ""},
		{"GET", "https://good.example/a/.;x/secret", ""},
		{"GET", "https://good.example/a/.//../secret", ""},
		{"GET", "https://good.example/a%2F.%2F../secret", ""},
		{"GET", "https://good.example//a/..//secret", ""},
		{"GET", "https://good.example/a/%252e%252e/secret", ""},
		{"GET", "https://good.example/a%252f..%252fsecret", ""},
		{"GET", "https://good.example/a/..%253b/secret", ""},
		{"GET", "https://good.example/100%25/a%2525", "GET https://good.example/100%25/a%2525"},
		{"GET", "https://good.example/..", ""},
		{"GET", "https://good.example/a%", ""},
		{"GET", "https://good.example/a%zz", ""},
		{"GET", "https://good.example/a%00", ""},
		{"GET", "https://good.example/...", "GET https://good.example/..."},
		{"GET", "https://good.example/?a=../x", "GET https://good.example/?a=../x"},
		{"GET", "https://good.example/" + strings.Repeat("a", MaxURL), ""},
	} {
		r, err := ParseRequest(tt.method, tt.url)
		got := ""
		if err == nil {
			got = r.String()
		}
		if got != tt.want {
			t.Errorf("%s %q is %q (%v), want %q", tt.method, tt.url, got, err, tt.want)
		}
	}
}

func TestRequestPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		opens   bool
		request string
		want    bool
	}{
		{"*", true, "POST http://a.example:8080/x", true},
		{"* https://git.example.com/acme/*", true, "GET https://git.example.com/acme/x", true},
		{"* https://git.example.com/acme/*", true, "GET http://git.example.com/acme/x", false},
		{"* https://git.example.com/acme/*", true, "GET https://git.example.com/other", false},
		{"* https://git.example.com/acme/*", true, "GET https://git.example.com:8443/acme/x", false},
		{"* https://git.example.com/acme/*", false, "GET https://git.example.com:8443/acme/x", true},
		{"GET https://*.example.com/*", true, "GET https://evil.com/.example.com/x", false},
		{"GET https://*.example.com/*", true, "GET https://a.example.com/x?y", true},
		{"GET https://*.example.com/*", true, "POST https://a.example.com/x", false},
		{"* *://a.example:*/*", true, "PUT http://a.example:9/x", true},
		{"* https://a.example/x", true, "GET https://a.example/x", true},
		{"* https://a.example/x", true, "GET https://a.example/x/y", false},
	} {
		p, err := ParseRequestPattern(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		method, url, _ := strings.Cut(tt.request, " ")
		r, err := ParseRequest(method, url)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(r, tt.opens); got != tt.want {
			t.Errorf("%s about %s: %t", tt.pattern, tt.request, got)
		}
	}
	for _, bad := range []string{
		"", "GET", "https://example.com/*", "GET example.com/*", "get https://example.com/*", "GET ftp://example.com/*",
		"GET https://example.com", "GET https://*example.com/*", "GET https://example.com/a b", "G* https://example.com/*",
		"GET https://Example.com/*", "GET https://user@example.com/*", "GET  https://example.com/*",
	} {
		if p, err := ParseRequestPattern(bad); err == nil {
			t.Errorf("%q is taken as %+v", bad, p)
		}
	}
}

// FuzzParse looks for texts whose spelling is not the only one, and for names that are
// addresses to somebody.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a.example:1", "0x7f.1:80", "[::ffff:1.2.3.4]:443", "bücher.example:443", "xn--bcher-kva.example:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(e.String())
		if err != nil || again != e {
			t.Fatalf("%q is %s, and that is %s (%v)", text, e, again, err)
		}
		a, isAddr := e.Host.Addr()
		if b, err := netip.ParseAddr(strings.TrimSuffix(e.Host.String(), ".")); (err == nil) != isAddr || isAddr && a != b {
			t.Fatalf("%q is %s: an address to one, a name to the other", text, e)
		}
		if strings.ContainsFunc(e.String(), func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("/\\?#@%*", r) }) {
			t.Fatalf("%q is %q", text, e)
		}
		p, err := ParsePattern(e.String())
		if err != nil || !p.Match(e, true) {
			t.Fatalf("%s as a pattern: %v", e, err)
		}
	})
}

// FuzzParseRequest looks for URLs whose spelling is not the only one.
func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{"http://a/", "https://0x7f.1:8/%2e%41?x", "http://[::1]//a;b", "http://a/./b/.", "http://a/.//../%2e"} {
		f.Add("GET", s)
	}
	f.Fuzz(func(t *testing.T, method, url string) {
		r, err := ParseRequest(method, url)
		if err != nil {
			return
		}
		again, err := ParseRequest(r.Method, r.URL())
		if err != nil || again != r {
			t.Fatalf("%q is %s, and that is %s (%v)", url, r, again, err)
		}
		if p, err := ParseRequestPattern(policyText(r)); err == nil && !p.Match(r, false) {
			t.Fatalf("%s as a pattern does not match itself", r)
		}
	})
}

// policyText is a pattern for just this request, if it has no wildcards of its own.
func policyText(r Request) string {
	if strings.ContainsAny(r.Path, "*?") {
		return "*"
	}
	return r.String()
}

// A path that is taken leads where the standard library takes it, and has no dots left to be
// read in another way.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/./a", "/a/.", "/a/..", "//.//b", "/%2e/%2E%2e", "/a/.%2fb", "/.;x/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRequest("GET", "http://a.example/"+text)
		if err != nil {
			return
		}
		got, _, _ := strings.Cut(r.Path, "?")
		asked, _, _ := strings.Cut("/"+text, "?")
		plain, err := url.PathUnescape(asked)
		if err != nil {
			t.Fatalf("%q is taken, and %v", text, err)
		}
		if there, err := url.PathUnescape(got); err != nil || path.Clean(there) != path.Clean(plain) {
			t.Fatalf("%q is %q, which is %q to a server, and %q was asked for (%v)", text, got, there, plain, err)
		}
		for part := range strings.SplitSeq(got, "/") {
			if part == "." || part == ".." {
				t.Fatalf("%q is %q", text, got)
			}
		}
	})
}

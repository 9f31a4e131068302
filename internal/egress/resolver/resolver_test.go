package resolver

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/toold/toold/internal/endpoint"
)

func query(name string, typ dnsmessage.Type, change func(*dnsmessage.Message)) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}},
	}
	if change != nil {
		change(&m)
	}
	raw, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return raw
}

func one(string) (netip.Addr, error) { return netip.MustParseAddr("198.18.0.1"), nil }

func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		what    string
		in      []byte
		refuse  bool
		code    dnsmessage.RCode
		answers int
		silent  bool
	}{
		{what: "A", in: query("a.example.com.", dnsmessage.TypeA, nil), answers: 1},
		{what: "case and no dot inside", in: query("A.EXAMPLE.com.", dnsmessage.TypeA, nil), answers: 1},
		{what: "AAAA", in: query("a.example.com.", dnsmessage.TypeAAAA, nil)},
		{what: "TXT", in: query("a.example.com.", dnsmessage.TypeTXT, nil)},
		{what: "an address", in: query("169.254.169.254.", dnsmessage.TypeA, nil), code: dnsmessage.RCodeNameError},
		{what: "an old address", in: query("0x7f.1.", dnsmessage.TypeA, nil), code: dnsmessage.RCodeNameError},
		{what: "a blank in it", in: query("a b.example.com.", dnsmessage.TypeA, nil), code: dnsmessage.RCodeNameError},
		{what: "NUL in it", in: query("a\x00.example.com.", dnsmessage.TypeA, nil), code: dnsmessage.RCodeNameError},
		{what: "the root", in: query(".", dnsmessage.TypeA, nil), code: dnsmessage.RCodeNameError},
		{what: "over the rate", in: query("a.example.com.", dnsmessage.TypeA, nil), refuse: true, code: dnsmessage.RCodeServerFailure},
		{what: "CHAOS", in: query("version.bind.", dnsmessage.TypeTXT, func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), code: dnsmessage.RCodeNotImplemented},
		{what: "an update", in: query("a.example.com.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.OpCode = 5 }), code: dnsmessage.RCodeNotImplemented},
		{what: "two questions", in: query("a.example.com.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), code: dnsmessage.RCodeFormatError},
		{what: "no question", in: query("a.example.com.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = nil }), code: dnsmessage.RCodeFormatError},
		{what: "an answer", in: query("a.example.com.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Response = true }), silent: true},
		{what: "short", in: []byte{1, 2, 3}, silent: true},
	} {
		out := Answer(tt.in, tt.refuse, one)
		if tt.silent {
			if out != nil {
				t.Errorf("%s: answered", tt.what)
			}
			continue
		}
		var m dnsmessage.Message
		if err := m.Unpack(out); err != nil || m.ID != 77 || !m.Response || m.RCode != tt.code || len(m.Answers) != tt.answers {
			t.Errorf("%s: %v, %+v", tt.what, err, m)
		}
	}
}

// An address stays a name's own, also with a later daemon, and after one that was killed while
// it wrote.
func TestNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	open := func(most int) *Names {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		n, err := OpenNames(most, f)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := open(400)
	seen := map[netip.Addr]string{}
	for i := range 400 {
		name := fmt.Sprintf("n%d.example.com", i)
		a, err := n.Address(name)
		if err != nil || seen[a] != "" || !Space.Contains(a) {
			t.Fatalf("%s: %v (also %s), %v", name, a, seen[a], err)
		}
		seen[a] = name
	}
	if _, err := n.Address("more.example.com"); !errors.Is(err, ErrFull) {
		t.Errorf("one over the bound: %v", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("half-a-na"); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	n = open(500)
	for a, name := range seen {
		if got, ok := n.Name(a); !ok || got != name {
			t.Errorf("%v is %q, want %q", a, got, name)
		}
	}
	a, err := n.Address("next.example.com")
	if err != nil || seen[a] != "" {
		t.Errorf("%v, which was %q; %v", a, seen[a], err)
	}
	if name, _ := n.Name(a); name != "next.example.com" {
		t.Errorf("%v is %q", a, name)
	}
	for _, a := range []string{"198.18.0.0", "198.19.255.255", "192.0.2.1", "198.20.0.1", "::1"} {
		if name, ok := n.Name(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is %q", a, name)
		}
	}
}

// FuzzAnswer: an answer can be read, repeats its question, and gives only what it was given.
func FuzzAnswer(f *testing.F) {
	f.Add(query("a.example.com.", dnsmessage.TypeA, nil))
	f.Add(query("a.example.com.", dnsmessage.TypeHTTPS, nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		asked := ""
		out := Answer(in, false, func(name string) (netip.Addr, error) { asked = name; return one(name) })
		if out == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(out); err != nil || len(m.Answers) > 1 || len(m.Answers) == 1 && asked == "" {
			t.Errorf("%v, %+v", err, m)
		}
		if asked == "" {
			return
		}
		if h, err := endpoint.ParseHost(asked); err != nil || h.String() != asked || strings.HasSuffix(asked, ".") {
			t.Errorf("asked for %q, %v", asked, err)
		}
	})
}

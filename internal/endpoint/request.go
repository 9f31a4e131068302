package endpoint

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/toold/toold/internal/tool/run/wildcard"
)

// MaxURL bounds the URL of a request, in bytes.
const MaxURL = 16 << 10

// Request is one HTTP request in its one spelling.
type Request struct {
	Method string
	Scheme string // http or https
	Endpoint
	Path string // with the query; it begins with /
}

// String gives METHOD URL, without the port that the scheme has anyway.
func (r Request) String() string { return r.Method + " " + r.URL() }

// URL gives the URL, without the port that the scheme has anyway.
func (r Request) URL() string {
	host := r.Endpoint.String()
	if r.Port == portOf(r.Scheme) {
		host = r.Host.url()
	}
	return r.Scheme + "://" + host + r.Path
}

func portOf(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

var methodText = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)

// ParseRequest reads a method and an absolute URL. It refuses a URL that servers read in
// more than one way: with a user, with ".." in its path however that is encoded, with "." beside
// an encoded slash or a parameter, with a backslash, blank or control character. Slashes that follow
// each other are one, "." as a whole segment is none, and escapes of letters, digits and -._~ are
// undone.
func ParseRequest(method, text string) (Request, error) {
	if !methodText.MatchString(method) {
		return Request{}, fmt.Errorf("%s is not a method: it has capital letters, such as GET", quoted(method))
	}
	if len(text) > MaxURL {
		return Request{}, fmt.Errorf("a URL has %d bytes; at most %d", len(text), MaxURL)
	}
	scheme, rest, ok := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "http" && scheme != "https" {
		return Request{}, fmt.Errorf("%s is not a URL of http or https", quoted(text))
	}
	if strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '#' }) {
		return Request{}, fmt.Errorf("%s has a blank, a control character, a backslash, a # or a character that is not ASCII: escape it", quoted(text))
	}
	at := strings.IndexAny(rest, "/?")
	if at < 0 {
		at = len(rest)
	}
	r := Request{Method: method, Scheme: scheme}
	if err := r.setHost(rest[:at]); err != nil {
		return Request{}, err
	}
	var err error
	r.Path, err = cleanPath(rest[at:])
	return r, err
}

func (r *Request) setHost(authority string) error {
	if strings.ContainsAny(authority, "@%") {
		return fmt.Errorf("%s: a URL has no user and no escapes before its path", quoted(authority))
	}
	last := authority[strings.LastIndexByte(authority, ']')+1:]
	if strings.Contains(last, ":") {
		var err error
		r.Endpoint, err = Parse(authority)
		return err
	}
	host, err := ParseHost(authority)
	if err == nil && strings.Contains(host.String(), ":") && last == authority {
		err = fmt.Errorf("%s: an IPv6 address stands in brackets", quoted(authority))
	}
	r.Endpoint = Endpoint{host, portOf(r.Scheme)}
	return err
}

// cleanPath gives path and query their one spelling.
func cleanPath(text string) (string, error) {
	path, query, hasQuery := strings.Cut(text, "?")
	var b strings.Builder
	b.WriteByte('/')
	for i := 0; i < len(path); i++ {
		switch c := path[i]; c {
		case '/':
			if !strings.HasSuffix(b.String()[max(0, b.Len()-1):], "/") {
				b.WriteByte(c)
			}
		case '%':
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return "", fmt.Errorf("the path %s has a %% that begins no escape", quoted(path))
			}
			escape := strings.ToUpper(path[i : i+3])
			i += 2
			if plainText, err := url.PathUnescape(escape); err == nil && isUnreserved(plainText[0]) {
				escape = plainText
			} else if escape == "%00" {
				return "", errors.New("the path has a NUL character")
			}
			b.WriteString(escape)
		default:
			b.WriteByte(c)
		}
	}
	clean := withoutDots(b.String())
	parts := strings.ReplaceAll(unescape(clean, nil), `\`, "/") // as whoever undoes more escapes takes it
	for part := range strings.SplitSeq(parts, "/") {
		name, _, _ := strings.Cut(part, ";") // parameters of a segment
		if name == "." || name == ".." {
			return "", fmt.Errorf("the path %s has . or .. in it: ask for the path that it leads to", quoted(path))
		}
	}
	if hasQuery {
		clean += "?" + query
	}
	return clean, nil
}

// withoutDots takes the segments "." out, which stand for where they are: repositories of
// apt have them. Their slashes stay, so that /a/. is /a/.
func withoutDots(path string) string {
	for i := 0; ; {
		at := strings.Index(path[i:], "/.")
		if at < 0 {
			return path
		}
		i += at
		switch rest := path[i+2:]; {
		case rest == "":
			return path[:i+1]
		case rest[0] == '/':
			path = path[:i] + rest
		default:
			i++
		}
	}
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func isUnreserved(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("-._~", c) >= 0
}

// RequestPattern is what a rule says of HTTP requests: "*", or METHOD URL, where the method
// may be "*", the scheme too, the host and port are a Pattern, and the path has wildcards.
// No part of a path can stand for a host.
type RequestPattern struct {
	text   string
	every  bool
	method string // "*" for each
	scheme string // "*" for both
	host   Pattern
	path   wildcard.Glob
	glob   string
	plain  [2]wildcard.Glob // path as Plain reads it, where the rule denies and where it opens
	wrong  error            // see Spelling
}

// ParseRequestPattern reads a pattern of requests.
func ParseRequestPattern(text string) (RequestPattern, error) {
	p := RequestPattern{text: text}
	if text == "*" {
		p.every = true
		return p, nil
	}
	method, rawURL, ok := strings.Cut(text, " ")
	scheme, rest, isURL := strings.Cut(rawURL, "://")
	if !ok || !isURL {
		return RequestPattern{}, errNotURL
	}
	if method != "*" && !methodText.MatchString(method) {
		return RequestPattern{}, fmt.Errorf("%s is not a method: write * or capital letters, such as GET", quoted(method))
	}
	if scheme != "*" && scheme != "http" && scheme != "https" {
		return RequestPattern{}, fmt.Errorf("%s is not a scheme of requests: write http, https or *", quoted(scheme))
	}
	// A CIDR has a slash of its own; requests name hosts.
	host, path, hasPath := strings.Cut(rest, "/")
	if !hasPath {
		return RequestPattern{}, fmt.Errorf("%s has no path: write %s/* for every path", quoted(text), quoted(rest))
	}
	var err error
	if p.host, err = ParsePattern(host); err != nil {
		return RequestPattern{}, err
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '#' }) {
		return RequestPattern{}, fmt.Errorf("the path of %s has a blank, a control character, a backslash, a # or a character that is not ASCII: escape it", quoted(text))
	}
	p.method, p.scheme = method, scheme
	p.glob, p.wrong = cleanGlob("/" + path)
	p.path = wildcard.Compile(p.glob)
	for i := range p.plain {
		p.plain[i] = wildcard.Compile(plainGlob(p.glob, i == 1))
	}
	return p, nil
}

// cleanGlob gives the path of a pattern the spelling that requests have, if there is one, and
// says where that is another. A "?" may begin a query, which has any spelling.
func cleanGlob(glob string) (string, error) {
	path, rest, more := strings.Cut(glob, "?")
	clean, err := cleanPath(path)
	if err != nil {
		return glob, fmt.Errorf("no request has such a path: %w", err)
	}
	if more {
		clean += "?" + rest
	}
	if clean != glob {
		return clean, fmt.Errorf("the path %s is spelled in another way: write %s", quoted(glob), quoted(clean))
	}
	return clean, nil
}

// Spelling says what is wrong with the spelling of the pattern's path: requests are never spelled
// so. A pattern with this error is about the right spelling, if there is one.
func (p RequestPattern) Spelling() error { return p.wrong }

// Network is the pattern of the address that is the host of this one, or of the CIDR that host and
// path seem to be meant for, as with /8* or /16/* behind an address; "" where the host is none.
func (p RequestPattern) Network() (pattern string, cidr bool) {
	at, ok := p.host.Prefix()
	if !ok {
		return "", false
	}
	pattern = at.Addr().String()
	digits, _, _ := strings.Cut(strings.TrimPrefix(p.glob, "/"), "/")
	if n, err := strconv.Atoi(strings.TrimRight(digits, "*")); err == nil {
		meant := netip.PrefixFrom(at.Addr(), n)
		if cidr = meant.IsValid() && meant.Masked() == meant; cidr {
			pattern = meant.String()
		}
	}
	if at.Addr().Is6() {
		pattern = "[" + pattern + "]"
	}
	return pattern, cidr
}

// Every reports whether the pattern is "*".
func (p RequestPattern) Every() bool { return p.every }

// Whole reports whether the pattern is about all requests to its hosts and ports.
func (p RequestPattern) Whole() bool { return p.every || p.method == "*" && p.glob == "/*" }

// About reports whether the pattern is about some request with this scheme to e. opens is as for
// Match.
func (p RequestPattern) About(scheme string, e Endpoint, opens bool) bool {
	return p.every || (p.scheme == "*" || p.scheme == scheme) && p.host.matchHost(e.Host) && p.matchPort(scheme, e.Port, opens)
}

// Names reports whether the pattern is about e, and says so of its port: by number, by ":*", or
// with none for the one that the scheme has.
func (p RequestPattern) Names(scheme string, e Endpoint) bool {
	return !p.every && p.About(scheme, e, true)
}

// HTTPS reports whether the pattern is about https, and whether about nothing else.
func (p RequestPattern) HTTPS() (too, alone bool) {
	return !p.every && p.scheme != "http", p.scheme == "https"
}

// PlainPort is the port whose number a pattern has that is about plain HTTP alone; 0 for others.
func (p RequestPattern) PlainPort() uint16 {
	if p.scheme != "http" {
		return 0
	}
	return p.host.port
}

// String gives the text that the pattern was read from.
func (p RequestPattern) String() string { return p.text }

// Match reports whether the pattern is about r. opens says whether the rule allows, or asks,
// rather than denies: without a port it is then about the scheme's alone.
func (p RequestPattern) Match(r Request, opens bool) bool {
	return p.matchEnd(r, opens) && (p.every || p.path.Match(r.Path))
}

// MatchPlain is Match for what Plain gives.
func (p RequestPattern) MatchPlain(r Request, opens bool) bool {
	i := 0
	if opens {
		i = 1
	}
	return p.matchEnd(r, opens) && (p.every || p.plain[i].Match(r.Path))
}

// matchEnd is Match for all but the path.
func (p RequestPattern) matchEnd(r Request, opens bool) bool {
	return p.every || (p.method == "*" || p.method == r.Method) && p.About(r.Scheme, r.Endpoint, opens)
}

func (p RequestPattern) matchPort(scheme string, port uint16, opens bool) bool {
	switch {
	case p.host.EveryPort(opens):
		return true
	case p.host.port != 0:
		return p.host.port == port
	}
	return port == portOf(scheme)
}

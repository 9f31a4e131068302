package egress

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode"
)

// kind is what a connection carries, by what its program says first.
type kind int

const (
	none    kind = iota
	unread       // nobody has looked
	silent       // nothing yet: what its program says is looked at
	request      // of HTTP
	secret       // TLS
	named        // TLS, to the name that was asked for
	other
)

// maxFirst bounds what is read until the kind is known. A line that is longer is taken for a
// request's, and so are as many blank ones, which is then refused.
const maxFirst = 4 << 10

// readFirst reads until the kind of a connection is known, and gives what it has read. An error
// is that of a side that ended or broke before; what it said until then is other. more is called
// before each read but the first.
func readFirst(from io.Reader, more func()) (first []byte, k kind, err error) {
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		first = append(first, buf[:n]...)
		if k := kindOf(first); k != none {
			return first, k, nil
		}
		switch {
		case errors.Is(err, io.EOF) && kindOf(append(first, '\n')) == request: // for who takes the end for that of a line
			return first, request, nil
		case err != nil:
			return first, other, err
		}
		more()
	}
}

// kindOf is none while more has to be seen. It takes for a request whatever a lenient server may
// read as one: with blanks and blank lines before it, other blanks than spaces, in any case, of HTTP/0.9.
func kindOf(first []byte) kind {
	if k := tlsOf(first); k != other {
		return k
	}
	line := behind(first, func(c byte) bool { return isBlank(c) || c == '\n' })
	method := bytes.IndexFunc(line, func(r rune) bool { return !isToken(r) })
	switch {
	case method < 0 && len(first) < maxFirst:
		return none // "" too
	case method == 0, method > 0 && !isBlank(line[method]):
		return other
	case method < 0:
		return request
	}
	if k := gitOf(line, method); k != request {
		return k
	}
	verb, target := line[:method], behind(line[method:], isBlank)
	switch {
	case len(target) > 0 && target[0] < ' ' && target[0] != '\n' && !bytes.ContainsFunc(verb, unicode.IsLetter):
		return other // as LDAP begins, and no request
	case len(target) > 0 && target[0] != '\n' && string(verb) == "GET":
		return request // of HTTP/0.9, which may have no slash
	}
	line, _, whole := bytes.Cut(target, []byte("\n"))
	if !whole {
		if len(first) >= maxFirst || bytes.HasPrefix(target, []byte("/")) {
			return request
		}
		return none
	}
	text := strings.ToLower(string(line))
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "http://") || strings.Contains(text, "http/") {
		return request
	}
	return other
}

// behind is what comes after the bytes that are skipped.
func behind(b []byte, skipped func(byte) bool) []byte {
	for len(b) > 0 && skipped(b[0]) {
		b = b[1:]
	}
	return b
}

// isBlank is for what some servers split the words of a line at: the blanks of ASCII, its separators, and
// those of Latin-1.
func isBlank(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' && c != '\n' || c >= 0x1c && c <= 0x1f || c == 0x85 || c == 0xa0
}

// tlsOf is secret for the beginning of TLS, with a record of it or with SSL 2's, and other for what
// is none.
func tlsOf(first []byte) kind {
	match := func(want ...int) kind { // -1: any, 128: with that bit
		for i, w := range want {
			switch {
			case i == len(first):
				return none
			case w == 128 && first[i]&128 == 0, w != -1 && w != 128 && int(first[i]) != w:
				return other
			}
		}
		return secret
	}
	if k := match(0x16, 3); k != other {
		return k
	}
	return match(128, -1, 1, 3)
}

// gitOf is other for what git says to a server of its own protocol, which ends with a NUL: no server
// takes a request with such a method, which ends at method, and a NUL in its line. It is none while the
// NUL may come yet, and request for all else.
func gitOf(line []byte, method int) kind {
	if method < 9 || !bytes.HasPrefix(line[4:method], []byte("git-")) {
		return request
	}
	switch end := bytes.IndexAny(line, "\x00\n"); {
	case end < 0 && len(line) < maxFirst:
		return none
	case end < 0 || line[end] != 0:
		return request
	}
	return other
}

func isToken(r rune) bool {
	return r > ' ' && r < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

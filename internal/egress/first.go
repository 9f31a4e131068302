package egress

import (
	"bytes"
	"io"
	"strings"
)

// kind is what a connection carries, by what its program says first.
type kind int

const (
	none    kind = iota
	unread       // nobody has looked
	request      // of HTTP
	secret       // TLS
	other
)

// maxFirst bounds what is read until the kind is known. A line that is longer is taken for a
// request's, which is then refused.
const maxFirst = 4 << 10

// readFirst reads until the kind of a connection is known, and gives what it has read. An error
// is that of a side that ended or broke before; what it said until then is other.
func readFirst(from io.Reader) (first []byte, k kind, err error) {
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		first = append(first, buf[:n]...)
		if k := kindOf(first); k != none {
			return first, k, nil
		}
		if err != nil {
			return first, other, err
		}
	}
}

// kindOf is none while more has to be seen. It takes for a request whatever a lenient server may
// read as one: with blank lines before it, and tabs, in any case, of HTTP/0.9.
func kindOf(first []byte) kind {
	if k := tlsOf(first); k != other {
		return k
	}
	line := bytes.TrimLeft(first, "\r\n")
	method := bytes.IndexFunc(line, func(r rune) bool { return !isToken(r) })
	switch {
	case method < 0 && len(line) < maxFirst:
		return none // "" too
	case method == 0, method > 0 && line[method] != ' ' && line[method] != '\t':
		return other
	case method < 0:
		return request
	}
	target := bytes.TrimLeft(line[method:], " \t")
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

func isToken(r rune) bool {
	return r > ' ' && r < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

package server

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds ids and names in paths and queries, and maxShown what is shown of one
// that is wrong.
const (
	maxName  = 64
	maxShown = 100
)

// wrongName says what is wrong with the id or the name of a session, "" for
// nothing.
func wrongName(s string) string { return wrong(s, maxName, "._-") }

// wrong says what is wrong with a text that begins with a letter or a digit and has
// at most most of them and of the others.
func wrong(s string, most int, others string) string {
	if s == "" || len(s) > most {
		return fmt.Sprintf("it has 1 to %d characters", most)
	}
	if !isAlnum(s[0]) {
		return "it begins with a letter or a digit"
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return "it has only letters, digits and " + strings.Join(strings.Split(others, ""), " ")
		}
	}
	return ""
}

// validID reports whether id is prefix and 1 to 64 ASCII letters and digits.
func validID(prefix, id string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || rest == "" || len(rest) > maxName {
		return false
	}
	for i := range len(rest) {
		if !isAlnum(rest[i]) {
			return false
		}
	}
	return true
}

// wrongID gives the check of ids with this prefix.
func wrongID(prefix string) func(string) string {
	return func(id string) string {
		if validID(prefix, id) {
			return ""
		}
		return fmt.Sprintf("it is %s and 1 to %d letters and digits", prefix, maxName)
	}
}

// wrongSaved says what is wrong with the id of a saved approval: that of the
// approval, and which of its requests.
func wrongSaved(id string) string {
	if rest, ok := strings.CutPrefix(id, "apr_"); !ok || rest == "" {
		return "it begins with apr_"
	}
	return wrongName(id)
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// wrongText says what is wrong with free text, "" for nothing.
func wrongText(s string, limit int) string {
	if len(s) > limit {
		return fmt.Sprintf("longer than %d bytes", limit)
	}
	if !utf8.ValidString(s) {
		return "not UTF-8"
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Sprintf("has a control character at byte %d", i)
	}
	return ""
}

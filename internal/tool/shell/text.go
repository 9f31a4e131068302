package shell

import (
	"strings"
	"unicode/utf8"
)

// maxOpeners bounds what can nest in a text, and with it the recursion of the
// parser, which has no bound of its own and takes up to some 2 KiB of stack for
// a level.
const maxOpeners = 16 << 10

// readable reports whether the text may be given to the parser, and otherwise
// why it is opaque. It refuses what bash and the parser are known to read
// differently before either has a grammar to go by.
func readable(text string) (why string, ok bool) {
	if len(text) > maxText {
		return "it is longer than a command can be", false
	}
	if strings.HasSuffix(text, "\\") {
		return "it ends in the middle of a word", false
	}
	openers := 0
	ascii := true
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b >= utf8.RuneSelf:
			ascii = false
		case b < ' ' && b != '\n' && b != '\t' || b == 0x7f:
			// A carriage return is white space for the parser and part of a word
			// for bash.
			return "it has a control character, which people do not see", false
		case opens[b] || keywordAt(text, i):
			openers++
		case b == '\n' && i > 0 && text[i-1] == '\\' && (i < 2 || text[i-2] != ' ' && text[i-2] != '\t'):
			// "$\<newline>(" is a substitution, "#\<newline>" ends a comment.
			return "it breaks a word over two lines", false
		}
	}
	if openers > maxOpeners {
		return "it nests more than can be judged", false
	}
	if !ascii {
		return plainLetters(text)
	}
	return "", true
}

// opens are the bytes that begin something nested.
var opens = func() (set [utf8.RuneSelf]bool) {
	for _, b := range "({`[!~" {
		set[b] = true
	}
	return set
}()

// keywordAt reports whether a word that may begin something nested, or go on
// with it, stands at text[i].
func keywordAt(text string, i int) bool {
	switch text[i] {
	case 'i', 'w', 'u', 'f', 'c', 's', 't', 'd', 'e':
	default:
		return false
	}
	if i > 0 && !strings.ContainsRune(" \t\n;&|({`", rune(text[i-1])) {
		return false
	}
	end := i
	for end < len(text) && 'a' <= text[end] && text[end] <= 'z' {
		end++
	}
	return keywords[text[i:end]]
}

// plainLetters refuses text that does not look like what it is.
func plainLetters(text string) (why string, ok bool) {
	if !utf8.ValidString(text) {
		return "it is not valid UTF-8", false
	}
	for _, r := range text {
		if r >= utf8.RuneSelf && hidden(r) {
			return "it has a character that cannot be seen or looks like a space", false
		}
	}
	if disguised(text) {
		return "it mixes letters of two alphabets that look alike in one word", false
	}
	return "", true
}

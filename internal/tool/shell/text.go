package shell

import (
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
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
	if keywordAt(text, 0) {
		openers++
	}
	for i := range len(text) {
		switch b := text[i]; {
		case 'a' <= b && b <= 'z': // most of a text: the others cost more to tell apart
			continue
		case b >= utf8.RuneSelf:
			ascii = false
			continue
		case b < ' ' && b != '\t' && b != '\n' || b == 0x7f:
			// A carriage return is white space for the parser and part of a word
			// for bash.
			return "it has a control character, which people do not see", false
		case b == '\n' && i > 0 && text[i-1] == '\\' && (i < 2 || text[i-2] != ' ' && text[i-2] != '\t'):
			// "$\<newline>(" is a substitution, "#\<newline>" ends a comment.
			return "it breaks a word over two lines", false
		case strings.IndexByte("({`[!~", b) >= 0:
			openers++
		case strings.IndexByte(" \t\n;&|", b) < 0:
			continue
		}
		if keywordAt(text, i+1) {
			openers++
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

// keywordAt reports whether a word that may begin something nested, or go on
// with it, begins at text[i].
func keywordAt(text string, i int) bool {
	end := i
	for end < len(text) && end < i+len("function")+1 && 'a' <= text[end] && text[end] <= 'z' {
		end++
	}
	return syntax.IsKeyword(text[i:end])
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

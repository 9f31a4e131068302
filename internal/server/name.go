package server

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown bounds what is shown of an id or a name that is wrong, in bytes.
const maxShown = 100

// form is what an id or a name looks like.
type form struct {
	*regexp.Regexp
	words string
}

// wrong says what is wrong with a text, "" for nothing.
func (f form) wrong(s string) string {
	if f.MatchString(s) {
		return ""
	}
	return f.words
}

// idForm is that of ids that begin with prefix.
func idForm(prefix string) form {
	return form{regexp.MustCompile("^" + prefix + "[0-9A-Za-z]{1,64}$"), "it is " + prefix + " and 1 to 64 letters and digits"}
}

// The forms of what stands in paths and queries. Nothing that has one is more than a name
// in a path, a log line or a file's name, but for the slashes of images.
var (
	callID     = idForm("call_")
	approvalID = idForm("apr_")
	eventID    = idForm("evt_")
	// savedID is that of the approval, and which of its requests.
	savedID = form{regexp.MustCompile("^apr_[0-9A-Za-z._-]{1,60}$"), "it is apr_ and 1 to 60 letters, digits, . _ and -"}
	// anyName is the id or the name of a session or a checkpoint.
	anyName   = form{regexp.MustCompile("^[0-9A-Za-z][0-9A-Za-z._-]{0,63}$"), "it is 1 to 64 letters, digits, . _ and -, and begins with a letter or a digit"}
	cacheName = form{regexp.MustCompile("^[0-9a-z][0-9a-z_-]{0,62}$"), "it is 1 to 63 small letters, digits, _ and -, and begins with a letter or a digit"}
	// imageName is the name or the digest of an image as far as the store does not know better.
	imageName = form{regexp.MustCompile("^[0-9A-Za-z][0-9A-Za-z._/:@-]{0,511}$"), "it is 1 to 512 letters, digits, . _ - / : and @, and begins with a letter or a digit"}
)

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

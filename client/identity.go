package client

import (
	"fmt"
	"strings"
	"unicode"
)

// GitIdentity is whose name git commit writes into the commits of a session, unless the
// repository's own configuration names somebody.
type GitIdentity struct {
	Name  string `json:"name"`
	Email string `json:"email"`
	// Creators says that it was read from the configuration of who makes the session: what
	// the daemon's configuration says goes before it.
	Creators bool `json:"creators,omitempty"`
}

// maxIdentity bounds each part of a GitIdentity, in bytes.
const maxIdentity = 256

// ParseGitIdentity reads "NAME <EMAIL>", as git writes it.
func ParseGitIdentity(s string) (GitIdentity, error) {
	name, rest, ok := strings.Cut(s, "<")
	email, after, closed := strings.Cut(rest, ">")
	i := GitIdentity{Name: strings.TrimSpace(name), Email: strings.TrimSpace(email)}
	if !ok || !closed || strings.TrimSpace(after) != "" {
		return i, fmt.Errorf("%.200q is no identity: write \"NAME <EMAIL>\"", s)
	}
	return i, i.Check()
}

// Check says what git would not take, or would write otherwise.
func (i GitIdentity) Check() error {
	for _, part := range [...]struct{ name, value string }{{"name", i.Name}, {"email", i.Email}} {
		switch {
		case part.value == "" || strings.TrimSpace(part.value) != part.value:
			return fmt.Errorf("the identity's %s is empty, or has a blank at an end", part.name)
		case len(part.value) > maxIdentity:
			return fmt.Errorf("the identity's %s has more than %d bytes", part.name, maxIdentity)
		case strings.ContainsFunc(part.value, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune("<>\ufffd", r) }):
			return fmt.Errorf("the identity's %s has a character that git does not keep in one", part.name)
		}
	}
	// git takes these off both ends, and an identity of nothing else is none.
	if strings.Trim(i.Name, ".,:;\"'\\ ") == "" {
		return fmt.Errorf("the identity's name %.40q has no character that git keeps", i.Name)
	}
	return nil
}

package image

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

var (
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	// A part of a digest is enough where it is unique, as with commits.
	prefixPattern = regexp.MustCompile(`^(sha256:)?[0-9a-f]{12,64}$`)
)

// parseName reads a name as registries know it: [host[:port]/]path[:tag], or
// with @sha256:… in place of the tag.
func parseName(s string, options ...name.Option) (name.Reference, error) {
	if digestPattern.MatchString(s) {
		return nil, fmt.Errorf("%w: %q is a digest alone; write NAME@%s", ErrInvalid, s, s)
	}
	ref, err := name.ParseReference(s, options...)
	if err != nil {
		return nil, fmt.Errorf("%w: name %q: %w", ErrInvalid, quotable(s), err)
	}
	return ref, nil
}

// familiar is the one spelling of a name that the store keeps: complete, but
// without the registry and the folder that are meant where none are named.
func familiar(ref name.Reference) string {
	s := strings.TrimPrefix(ref.Name(), name.DefaultRegistry+"/")
	return strings.TrimPrefix(s, "library/")
}

// maxNames bounds how many names an archive may claim: the store keeps them all.
const maxNames = 100

// importNames are the names for what is imported: the given one, or else those
// that the archive claims for it.
func importNames(given string, claimed []string) ([]string, error) {
	if given != "" {
		claimed = []string{given}
	}
	var names []string
	for _, c := range claimed {
		if given == "" && !strings.ContainsAny(c, "/:") {
			continue // only a tag: many tools write no more into a layout
		}
		ref, err := parseName(c)
		if err != nil {
			return nil, err
		}
		if _, ok := ref.(name.Digest); ok {
			return nil, fmt.Errorf("%w: name %q: what is imported is named with a tag, NAME:TAG", ErrInvalid, c)
		}
		names = append(names, familiar(ref))
	}
	if len(names) > maxNames {
		return nil, fmt.Errorf("%w: it claims %d names, and may claim %d; say one", ErrTooLarge, len(names), maxNames)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: it has no name of its own; say one", ErrInvalid)
	}
	return names, nil
}

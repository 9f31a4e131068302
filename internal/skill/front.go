package skill

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/toold/toold/internal/plain"
)

// Bounds of what SKILL.md says of a skill, in bytes.
const (
	maxFront       = 16 << 10
	maxName        = 64
	maxDescription = 1 << 10
)

// fence stands alone on the lines before and after the front matter.
const fence = "---"

var nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// front is the front matter. Keys of others are let stand: the format has room for them.
type front struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	// Allowed are tools that the skill would like to use: names between spaces, or a list. It
	// is told, and allows nothing.
	Allowed yaml.Node `yaml:"allowed-tools"`
}

// parse splits a SKILL.md into what it says of the skill and its instructions.
func parse(text []byte) (*Skill, string, error) {
	if !utf8.Valid(text) {
		return nil, "", errors.New("it is not UTF-8")
	}
	text = bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\uFEFF")), []byte("\r\n"), []byte("\n"))
	head, ok := bytes.CutPrefix(text, []byte(fence+"\n"))
	if !ok {
		return nil, "", errors.New("its first line is not ---")
	}
	head, body, ok := bytes.Cut(append([]byte("\n"), head...), []byte("\n"+fence+"\n"))
	if !ok {
		if head, ok = bytes.CutSuffix(head, []byte("\n"+fence)); !ok {
			return nil, "", errors.New("no line --- ends its front matter")
		}
	}
	if len(head) > maxFront {
		return nil, "", fmt.Errorf("its front matter has more than %d bytes", maxFront)
	}
	var f front
	if err := yaml.Unmarshal(head, &f); err != nil {
		return nil, "", fmt.Errorf("its front matter: %s", plain.Cut(plain.Line(err.Error()), 200))
	}
	s, err := f.skill()
	return s, strings.TrimSpace(string(body)), err
}

// skill checks what the front matter says.
func (f *front) skill() (*Skill, error) {
	switch {
	case !Named(f.Name):
		return nil, fmt.Errorf("its name %q is not up to %d of a-z, 0-9 and single - between them", plain.Cut(plain.Line(f.Name), maxName), maxName)
	case strings.TrimSpace(f.Description) == "":
		return nil, errors.New("it has no description")
	}
	words := strings.Join(strings.Fields(f.Description), " ")
	s := &Skill{Name: f.Name, Description: plain.Cut(plain.Line(words), maxDescription)}
	switch f.Allowed.Kind {
	case 0:
	case yaml.ScalarNode:
		s.Allowed = f.Allowed.Value
	case yaml.SequenceNode:
		var all []string
		if err := f.Allowed.Decode(&all); err != nil {
			return nil, errors.New("its allowed-tools are not all text")
		}
		s.Allowed = strings.Join(all, ", ")
	default:
		return nil, errors.New("its allowed-tools are neither text nor a list")
	}
	s.Allowed = plain.Cut(plain.Line(s.Allowed), maxDescription)
	return s, nil
}

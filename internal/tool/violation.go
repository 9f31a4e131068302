package tool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// maxViolations bounds an answer: the rest is counted, not listed.
const maxViolations = 50

// violationsOf flattens what the validator found, each with its place and what
// was expected there.
func violationsOf(err error, fields []string) []client.Violation {
	var verr *validator.ValidationError
	if !errors.As(err, &verr) {
		return []client.Violation{{Message: err.Error()}}
	}
	var out []client.Violation
	collect(verr, fields, &out)
	return out
}

func collect(e *validator.ValidationError, fields []string, out *[]client.Violation) {
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			collect(cause, fields, out)
		}
		return
	}
	path := strictjson.Pointer(e.InstanceLocation...)
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			*out = append(*out, client.Violation{Path: path + strictjson.Pointer(name), Message: "is required"})
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			*out = append(*out, client.Violation{Path: path + strictjson.Pointer(name), Message: unknownKey(name, path, fields)})
		}
	default:
		*out = append(*out, client.Violation{Path: path, Message: expected(e.ErrorKind)})
	}
}

// unknownKey words the violation of a key that the schema does not have.
func unknownKey(name, path string, fields []string) string {
	if path != "" { // fields are those of the input itself
		return "is not a known key"
	}
	if near := similarField(name, fields); len(near) > 0 {
		return fmt.Sprintf("is not a known key; did you mean %q?", near[0])
	}
	return "is not a known key; known are " + strings.Join(fields, ", ")
}

// expected words a violation of the other kinds.
func expected(k validator.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("is %s, expected %s", withArticle(k.Got), orList(k.Want))
	case *kind.Enum:
		want := make([]string, len(k.Want))
		for i, v := range k.Want {
			want[i] = fmt.Sprintf("%q", v)
		}
		return "must be one of " + strings.Join(want, ", ")
	case *kind.MinLength:
		if k.Want == 1 {
			return "must not be empty"
		}
		return fmt.Sprintf("has %s, must have at least %d", plain.Count(k.Got, "character", "characters"), k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("has %d characters, may have at most %d", k.Got, k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("has %s, must have at least %d", plain.Count(k.Got, "item", "items"), k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has %d items, may have at most %d", k.Got, k.Want)
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	default:
		return k.LocalizedString(message.NewPrinter(language.English))
	}
}

func withArticle(typ string) string {
	switch typ {
	case "null":
		return typ
	case "array", "object", "integer":
		return "an " + typ
	default:
		return "a " + typ
	}
}

func orList(types []string) string {
	named := make([]string, len(types))
	for i, t := range types {
		named[i] = withArticle(t)
	}
	return strings.Join(named, " or ")
}

// Bounds of what an answer says of names and values that a client gave, in bytes.
const (
	maxNameShown     = 64
	maxPathShown     = 256
	maxTextShown     = 512
	maxViolationText = 8 << 10 // of all violations together
)

// invalidInput is the answer to an input that does not fit its tool.
func invalidInput(tool string, violations []client.Violation) *client.Error {
	slices.SortStableFunc(violations, func(a, b client.Violation) int { return cmp.Compare(a.Path, b.Path) })
	shown := make([]client.Violation, 0, min(len(violations), maxViolations))
	var b strings.Builder
	fmt.Fprintf(&b, "the input of %s does not fit its schema:", tool)
	for _, v := range violations[:min(len(violations), maxViolations)] {
		v.Path, v.Message = plain.Cut(v.Path, maxPathShown), plain.Cut(v.Message, maxTextShown)
		if b.Len()+len(v.Path)+len(v.Message) > maxViolationText {
			break
		}
		b.WriteString("\n- ")
		if v.Path != "" {
			fmt.Fprintf(&b, "%s ", v.Path)
		}
		b.WriteString(v.Message)
		shown = append(shown, v)
	}
	if more := len(violations) - len(shown); more > 0 {
		fmt.Fprintf(&b, "\n- and %d more", more)
	}
	return &client.Error{Code: client.CodeInvalidInput, Message: b.String(), Hint: "rewrite the input and call again", Violations: shown}
}

package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toold/toold/internal/plain"
)

// Facts are what descriptions say of the place where their tools work. The zero
// value says what holds anywhere.
type Facts struct {
	// Tools are those that hints may name; nil is all.
	Tools []string
	// Timeout is that of a command whose call asks for none, MaxTimeout the most that
	// it may ask for; 0 is not known.
	Timeout, MaxTimeout time.Duration
	// Skills are those that can be loaded. SkillsLeft counts what was found and cannot.
	Skills     []SkillFact
	SkillsLeft int
	// Session is nil where it is not known in which one calls will be made.
	Session *SessionFacts
}

// SessionFacts are what the tools of one session find. The texts are sentences.
type SessionFacts struct {
	Worktree string   // the path inside
	ReadOnly bool     // the worktree is
	Git      string   // what of a repository is in the worktree
	Writable []string // directories
	Layer    bool     // other places can be written too, until the session ends
	Network  string
	Mounts   string   // which commands see; "" where all see all
	Limits   []string // each a few words
	Shell    string   // that runs commands
	// Programs and Missing are programs that are there and not there, of those that
	// were looked for.
	Programs, Missing []string
}

// Describe is d with the description and the schema for these facts.
func (d *Definition) Describe(f Facts) (*Definition, error) {
	var b bytes.Buffer
	if err := d.template.Execute(&b, f); err != nil {
		return nil, fmt.Errorf("describe %s: %w", d.Name, err)
	}
	c := *d
	c.Description = strings.TrimSpace(b.String())
	if d.fields != nil {
		c.input = d.input.CloneSchemas()
		d.fields(c.input, f)
		schema, err := json.Marshal(c.input)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", d.Name, err)
		}
		c.Schema = schema
	}
	return &c, nil
}

// parseDescription reads a description, which is a template over Facts.
func parseDescription(name, text string) (*template.Template, error) {
	return template.New(name).Parse(text)
}

// May reports whether hints may name a tool.
func (f Facts) May(name string) bool { return f.Tools == nil || slices.Contains(f.Tools, name) }

// Hints lists those tools of pairs of name and purpose that may be named: "`grep` to
// search contents and `read` to look at a file"; "" for none.
func (f Facts) Hints(pairs ...string) string {
	var all []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if f.May(pairs[i]) {
			all = append(all, "`"+pairs[i]+"` "+pairs[i+1])
		}
	}
	return plain.Enumerate(all)
}

// TimeoutWords is Timeout as people say it.
func (f Facts) TimeoutWords() string {
	d := f.timeout()
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}, {time.Millisecond, "millisecond"}} {
		if d >= u.unit && d%u.unit == 0 {
			return countOf(int64(d/u.unit), u.name)
		}
	}
	return d.String()
}

// TimeoutMillis is Timeout in milliseconds.
func (f Facts) TimeoutMillis() int64 { return f.timeout().Milliseconds() }

// MaxMillis is MaxTimeout in milliseconds; 0 = not known.
func (f Facts) MaxMillis() int64 { return f.MaxTimeout.Milliseconds() }

// defaultTimeout is that of the shipped configuration.
const defaultTimeout = 2 * time.Minute

func (f Facts) timeout() time.Duration {
	switch {
	case f.Timeout <= 0 && f.MaxTimeout <= 0:
		return defaultTimeout
	case f.Timeout <= 0 || f.MaxTimeout > 0 && f.Timeout > f.MaxTimeout:
		return f.MaxTimeout
	}
	return f.Timeout
}

// WhereToWrite says which places can be written.
func (s *SessionFacts) WhereToWrite() string {
	var all []string
	for _, dir := range s.Writable {
		all = append(all, "`"+dir+"`")
	}
	switch {
	case len(all) == 0:
		return "Nothing can be written."
	case s.Layer:
		return plain.Enumerate(all) + " can be written; what is written elsewhere goes with the session."
	}
	return plain.Enumerate(all) + " can be written, everything else is read-only."
}

// ProgramsHere says which programs there are.
func (s *SessionFacts) ProgramsHere() string {
	var said []string
	if len(s.Programs) > 0 {
		said = append(said, "Programs that are here, among others: "+strings.Join(s.Programs, ", ")+".")
	}
	if len(s.Missing) > 0 {
		said = append(said, "Not here: "+strings.Join(s.Missing, ", ")+".")
	}
	return strings.Join(said, " ")
}

// LimitWords lists the limits.
func (s *SessionFacts) LimitWords() string { return plain.Enumerate(s.Limits) }

func countOf(n int64, unit string) string {
	words := []string{"no", "one", "two", "three", "four", "five"}
	text := strconv.FormatInt(n, 10)
	if n < int64(len(words)) {
		text = words[n]
	}
	if n != 1 {
		unit += "s"
	}
	return text + " " + unit
}

// bashFields words the fields of bash.
func bashFields(s *jsonschema.Schema, f Facts) {
	text := fmt.Sprintf("Milliseconds after which the command is ended. The default is %d (%s)", f.TimeoutMillis(), f.TimeoutWords())
	if most := f.MaxMillis(); most > 0 {
		text += fmt.Sprintf(", the most %d", most)
	}
	s.Properties["timeout"].Description = text + "."
}

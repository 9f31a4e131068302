package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// Source is where tools come from. The built-in ones are one.
type Source interface {
	// Name says to people where: "built in".
	Name() string
	// Tools gives the definitions in the order in which they are offered. It is called once.
	Tools() []*Definition
}

// Set is the tools that one session has at one time.
type Set struct {
	// Revision names the tools and their inputs: equal sets have the same one.
	Revision string
	Tools    []*Definition
	Absent   []Absent
}

// Absent is a tool that a set does not have, and why.
type Absent struct{ Name, Why string }

// Set selects the tools that are not hidden and about which lacks says "": it gives the reason
// for the others.
func (r *Registry) Set(lacks func(*Definition) string) *Set {
	s := &Set{Absent: slices.Clone(r.shadowed)}
	h := sha256.New()
	for _, d := range r.List() {
		if why := lacks(d); why != "" {
			s.Absent = append(s.Absent, Absent{d.Name, why})
			continue
		}
		s.Tools = append(s.Tools, d)
		_, _ = fmt.Fprintf(h, "%d:%s%d:%s", len(d.Name), d.Name, len(d.Schema), d.Schema) // a hash takes everything
	}
	s.Revision = hex.EncodeToString(h.Sum(nil)[:8])
	return s
}

// Names are the names of the tools.
func (s *Set) Names() []string {
	names := make([]string, len(s.Tools))
	for i, d := range s.Tools {
		names[i] = d.Name
	}
	return names
}

// Choice is a list of tools that somebody has chosen: [profile.NAME] tools of the configuration.
// Names with a "-" before them are left out; where there are others, all that they do not name
// is. A * stands for any text. The zero value leaves nothing out.
type Choice struct {
	Of    string // whose it is: "profile ci"
	Names []string
}

// Lacks says why a tool is left out; "" where it is not.
func (c Choice) Lacks(name string) string {
	chosen, only := false, false
	for _, n := range c.Names {
		pattern, out := strings.CutPrefix(n, "-")
		switch hit := matches(pattern, name); {
		case out && hit:
			return c.Of + " leaves it out (" + n + ")"
		case !out:
			only, chosen = true, chosen || hit
		}
	}
	if only && !chosen {
		return c.Of + " has only " + strings.Join(c.named(), ", ")
	}
	return ""
}

// named are the names that are not left out.
func (c Choice) named() []string {
	return slices.DeleteFunc(slices.Clone(c.Names), func(n string) bool { return strings.HasPrefix(n, "-") })
}

// maxChoice bounds the names of a Choice.
const maxChoice = 200

// CheckChoice says what is wrong with the names of a Choice. One that no tool has is probably
// misspelt, and would leave in what was to be left out.
func CheckChoice(names []string) error {
	if len(names) > maxChoice {
		return fmt.Errorf("%d names are more than %d", len(names), maxChoice)
	}
	var all []string
	for _, d := range builtin() {
		if !d.Hidden {
			all = append(all, d.Name)
		}
	}
	for _, n := range names {
		name := strings.TrimPrefix(n, "-")
		if slices.Contains(all, name) || strings.Contains(name, "*") {
			continue
		}
		near := "the tools are " + strings.Join(all, ", ")
		if alike := plain.Near(name, all); len(alike) > 0 {
			near = "did you mean " + strings.Join(alike, " or ") + "?"
		}
		return fmt.Errorf("there is no tool %q; %s", plain.Cut(name, maxNameShown), near)
	}
	return nil
}

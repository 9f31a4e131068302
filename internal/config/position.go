package config

import (
	"strings"

	"github.com/toold/toold/internal/tomltext"
)

// origin is where a key was set.
type origin struct {
	source string // file, variable or flag
	line   int
}

// origins knows where each key was set. The zero value knows of nothing, as for
// settings that were made in code.
type origins struct {
	doc       *tomltext.Document
	overrides map[string]string // dotted key → variable or flag
	follows   map[string]bool   // dotted keys of limits that follow from their other half
}

// of finds where path was set, or else the innermost table around it.
func (o origins) of(path []string) origin {
	if source, ok := o.overrides[strings.Join(path, ".")]; ok {
		return origin{source: source}
	}
	if o.doc == nil {
		return origin{}
	}
	n := o.doc.Root.Nearest(path...)
	if n == o.doc.Root {
		return origin{} // nothing of it was said anywhere
	}
	return origin{o.doc.Name, n.Line}
}

// follow notes that what is at path follows from another setting.
func (o origins) follow(path []string) { o.follows[strings.Join(path, ".")] = true }

func (o origins) followed(path []string) bool { return o.follows[strings.Join(path, ".")] }

// has reports whether path was set.
func (o origins) has(path ...string) bool {
	if _, ok := o.overrides[strings.Join(path, ".")]; ok {
		return true
	}
	return o.doc != nil && o.doc.Root.Find(path...) != nil
}

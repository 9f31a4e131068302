package config

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// origin is where a key was set.
type origin struct {
	source string // file, variable or flag
	line   int
}

// origins finds the origin of a key by its path (see pathKey).
type origins map[string]origin

// of finds where path was set, or else the innermost table around it.
func (o origins) of(path []string) origin {
	for n := len(path); n > 0; n-- {
		if at, ok := o[pathKey(path[:n])]; ok {
			return at
		}
	}
	return origin{}
}

// pathKey joins with a byte that no key of ours has, so that ["a.b"] and
// ["a", "b"] stay apart.
func pathKey(path []string) string { return strings.Join(path, "\x00") }

// dotted is a path as a person writes it.
func dotted(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = p
		if p == "" || strings.ContainsFunc(p, notBare) {
			parts[i] = fmt.Sprintf("%q", p)
		}
	}
	return strings.Join(parts, ".")
}

func notBare(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}

// positions indexes the lines of all keys of a TOML document. The decoder that
// reads the values gives no positions of keys, this parser gives no values that
// were checked for duplicates; so both read the document, and what either of
// them refuses is refused.
func positions(source string, doc []byte) (origins, error) {
	ix := indexer{source: source, at: origins{}}
	for i, b := range doc {
		if b == '\n' {
			ix.newlines = append(ix.newlines, i)
		}
	}
	ix.parser.Reset(doc)
	var table []string
	for ix.parser.NextExpression() {
		expr := ix.parser.Expression()
		switch expr.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = ix.key(nil, expr)
		case unstable.KeyValue:
			ix.keyValue(table, expr)
		}
	}
	return ix.at, ix.syntaxError(ix.parser.Error())
}

type indexer struct {
	source   string
	parser   unstable.Parser
	newlines []int // their offsets
	at       origins
}

// key reads the dotted key of expr below prefix and notes the line of each part.
func (ix *indexer) key(prefix []string, expr *unstable.Node) []string {
	path := slices.Clone(prefix)
	for it := expr.Key(); it.Next(); {
		n := it.Node()
		path = append(path, string(n.Data))
		k := pathKey(path)
		if _, ok := ix.at[k]; !ok {
			ix.at[k] = origin{ix.source, ix.line(int(n.Raw.Offset))}
		}
	}
	return path
}

func (ix *indexer) keyValue(prefix []string, expr *unstable.Node) {
	path := ix.key(prefix, expr)
	ix.value(path, expr.Value())
}

// value goes into inline tables, also those in arrays; they have keys too.
func (ix *indexer) value(path []string, v *unstable.Node) {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			ix.keyValue(path, it.Node())
		}
	case unstable.Array:
		for it := v.Children(); it.Next(); {
			ix.value(path, it.Node())
		}
	}
}

func (ix *indexer) line(offset int) int {
	return 1 + sort.SearchInts(ix.newlines, offset)
}

func (ix *indexer) syntaxError(err error) error {
	var perr *unstable.ParserError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &perr) && len(perr.Highlight) > 0:
		return asError([]Problem{{ix.source, ix.line(int(ix.parser.Range(perr.Highlight).Offset)), perr.Message}})
	}
	return asError([]Problem{{Source: ix.source, Message: err.Error()}})
}

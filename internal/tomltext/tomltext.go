// Package tomltext reads TOML so that everything in it can be pointed at: the
// values, the line of every key, and the order in which the keys were written.
//
// No one TOML library gives all three. The one that decodes the values knows no
// positions of keys, the one that knows positions does not check for keys that
// stand twice; so both read the text, and what either refuses is refused.
package tomltext

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Document is a TOML text that was read.
type Document struct {
	// Name stands for the text in messages.
	Name string
	// Values are the decoded values: tables are map[string]any, arrays of tables
	// []map[string]any, other arrays []any.
	Values map[string]any
	// Root is the top level table.
	Root *Node
}

// Node is a key of a table or an element of an array: where it stands, and what
// is in it. A nil *Node is one that the text does not have.
type Node struct {
	// Name is the key; "" for elements of arrays and for the root.
	Name string
	// Line is where it first stands, counted from 1.
	Line int
	// Order counts the nodes of a document in the order of the text.
	Order int
	// Dotted says that the key stands behind a dot on the left of a value, as b
	// in "a.b = 1", and not in a table of its own, as in "[a]" or "a = { }".
	Dotted bool
	// Keys are those of a table, in the order of the text.
	Keys []*Node
	// Items are the elements of an array.
	Items []*Node

	byName map[string]*Node
}

// Key finds a key of a table; nil when it is not there.
func (n *Node) Key(name string) *Node {
	if n == nil {
		return nil
	}
	return n.byName[name]
}

// Item gives an element of an array; nil when it is not there.
func (n *Node) Item(i int) *Node {
	if n == nil || i < 0 || i >= len(n.Items) {
		return nil
	}
	return n.Items[i]
}

// Find follows a path of keys. An element of an array is its number, counted
// from 1. The result is nil when the text does not have it.
func (n *Node) Find(path ...string) *Node {
	for _, part := range path {
		if n != nil && len(n.Items) > 0 {
			i, err := strconv.Atoi(part)
			if err != nil {
				return nil
			}
			n = n.Item(i - 1)
			continue
		}
		n = n.Key(part)
	}
	return n
}

// Nearest is Find that stops at the innermost node which the text has. It is the
// root when it has nothing of path.
func (n *Node) Nearest(path ...string) *Node {
	for len(path) > 0 {
		if found := n.Find(path...); found != nil {
			return found
		}
		path = path[:len(path)-1]
	}
	return n
}

// Bounds of every text. The decoder spends the square of a key's depth on it, the
// other reader calls itself for each bracket, and neither has a bound.
const (
	// maxDepth is more than twice what any setting needs.
	maxDepth = 16
	// maxParts is more than twice what the most rules that a configuration may have
	// need.
	maxParts = 50_000
)

// Parse reads text; name stands for it in messages. An error is an *Error with
// the first thing that is not TOML: after it nothing can be trusted. Nor is a text
// read whose size, depth and number of parts would take much to read.
func Parse(name string, text []byte) (*Document, error) { return ParseShallow(name, text, maxDepth) }

// ParseShallow is Parse for a text in which nothing may be nested deeper than
// depth.
func ParseShallow(name string, text []byte, depth int) (*Document, error) {
	if p := excess(text, depth); p != nil {
		p.Source = name
		return nil, Join([]Problem{*p})
	}
	values, err := decode(name, text)
	if err != nil {
		return nil, err
	}
	root, err := index(name, text, depth)
	if err != nil {
		return nil, err
	}
	return &Document{name, values, root}, nil
}

// bare is a setting whose value is text without quotes, as YAML and shells have it.
var bare = regexp.MustCompile(`^\s*([\w.-]+|"[^"]*")\s*=\s*([^\s"'\[{#=][^"'\[\]{}#]*?)\s*(#.*)?$`)

// unquoted says what to write in a line that is no TOML, where that is known.
func unquoted(text []byte, line int) string {
	lines := bytes.Split(text, []byte("\n"))
	if line < 1 || line > len(lines) {
		return ""
	}
	m := bare.FindSubmatch(bytes.TrimSuffix(lines[line-1], []byte("\r")))
	if m == nil || len(m[2]) > 100 {
		return ""
	}
	var value map[string]any
	if _, err := toml.Decode("x = "+string(m[2]), &value); err == nil {
		return "" // something else is wrong
	}
	return fmt.Sprintf("; text stands in quotes: write %s = %q", m[1], m[2])
}

func decode(name string, text []byte) (map[string]any, error) {
	values := make(map[string]any)
	_, err := toml.Decode(string(text), &values)
	if err == nil {
		return values, nil
	}
	if perr, ok := errors.AsType[toml.ParseError](err); ok {
		return nil, Join([]Problem{{name, perr.Position.Line, perr.Message + unquoted(text, perr.Position.Line)}})
	}
	return nil, Join([]Problem{{Source: name, Message: err.Error()}})
}

// index finds all nodes of a text.
func index(name string, text []byte, depth int) (*Node, error) {
	ix := newIndexer(text)
	ix.depth = depth
	table, at := ix.root, 0
	for ix.tooDeep == 0 && ix.parser.NextExpression() {
		expr := ix.parser.Expression()
		switch expr.Kind {
		case unstable.Table:
			table, at = ix.header(expr, false)
		case unstable.ArrayTable:
			table, at = ix.header(expr, true)
		case unstable.KeyValue:
			ix.keyValue(table, at, expr)
		}
	}
	if ix.tooDeep > 0 {
		return nil, Join([]Problem{{name, ix.tooDeep, tooDeep(depth)}})
	}
	if err := ix.parser.Error(); err != nil {
		return nil, ix.syntaxError(name, err)
	}
	return ix.root, nil
}

// indexer builds the tree of nodes.
type indexer struct {
	parser   unstable.Parser
	newlines []int // their offsets
	root     *Node
	count    int
	depth    int // the most that is gone into
	tooDeep  int // the line where that was not enough; 0 for none
}

func newIndexer(text []byte) *indexer {
	ix := &indexer{root: &Node{}}
	ix.parser.Reset(text)
	for i, b := range text {
		if b == '\n' {
			ix.newlines = append(ix.newlines, i)
		}
	}
	return ix
}

// header goes to the table of a [header], or to the next element of [[header]],
// and says how deep that is.
func (ix *indexer) header(expr *unstable.Node, array bool) (*Node, int) {
	n, at := ix.root, 0
	for it := expr.Key(); it.Next(); {
		if at++; at > ix.depth {
			ix.tooDeep = ix.line(int(it.Node().Raw.Offset))
			break
		}
		n = ix.child(n, it.Node())
		if (!array || !it.IsLast()) && len(n.Items) > 0 {
			n = n.Items[len(n.Items)-1] // a table in an array is one of its last element
		}
	}
	if array {
		n = ix.item(n, ix.lineOfKey(expr))
	}
	return n, at
}

func (ix *indexer) lineOfKey(expr *unstable.Node) int {
	it := expr.Key()
	if !it.Next() {
		return 0
	}
	return ix.line(int(it.Node().Raw.Offset))
}

// keyValue reads a key and its value in a table that is so deep.
func (ix *indexer) keyValue(table *Node, at int, expr *unstable.Node) {
	n := table
	for it := expr.Key(); it.Next(); {
		if at++; at > ix.depth {
			ix.tooDeep = ix.line(int(it.Node().Raw.Offset))
			return
		}
		dotted := n != table
		known := n.Key(string(it.Node().Data)) != nil
		n = ix.child(n, it.Node())
		if !known {
			n.Dotted = dotted
		}
	}
	ix.value(n, at, expr.Value())
}

// value goes into inline tables, also those in arrays; they have keys too.
func (ix *indexer) value(n *Node, at int, v *unstable.Node) {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next() && ix.tooDeep == 0; {
			ix.keyValue(n, at, it.Node())
		}
	case unstable.Array:
		if at >= ix.depth {
			ix.tooDeep = n.Line
			return
		}
		for it := v.Children(); it.Next() && ix.tooDeep == 0; {
			item := ix.item(n, n.Line)
			ix.value(item, at+1, it.Node())
			if len(item.Keys) > 0 {
				item.Line = item.Keys[0].Line // the parser has no position of a brace
			}
		}
	}
}

// child finds or makes the key of a table that key names.
func (ix *indexer) child(n *Node, key *unstable.Node) *Node {
	name := string(key.Data)
	if known := n.Key(name); known != nil {
		return known
	}
	c := ix.node(name, ix.line(int(key.Raw.Offset)))
	if n.byName == nil {
		n.byName = make(map[string]*Node)
	}
	n.byName[name] = c
	n.Keys = append(n.Keys, c)
	return c
}

func (ix *indexer) item(n *Node, line int) *Node {
	c := ix.node("", line)
	n.Items = append(n.Items, c)
	return c
}

func (ix *indexer) node(name string, line int) *Node {
	ix.count++
	return &Node{Name: name, Line: line, Order: ix.count}
}

func (ix *indexer) line(offset int) int {
	i, _ := slices.BinarySearch(ix.newlines, offset)
	return i + 1
}

func (ix *indexer) syntaxError(name string, err error) error {
	var perr *unstable.ParserError
	if errors.As(err, &perr) && len(perr.Highlight) > 0 {
		return Join([]Problem{{name, ix.line(int(ix.parser.Range(perr.Highlight).Offset)), perr.Message}})
	}
	return Join([]Problem{{Source: name, Message: err.Error()}})
}

// Dotted is a path as a person writes it: with quotes where TOML needs them.
func Dotted(path ...string) string {
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

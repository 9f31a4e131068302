// Package tool is the daemon's half of the tools: their definitions, the
// schemas of their inputs, strict parsing, and Access, which says what a call
// will touch. Nothing here does any I/O; the work itself is in package run,
// which is linked into the agent.
//
// To add a tool, see the recipe in docs/architecture.md; example_test.go carries it
// out. A description in NAME.md is a template over Facts.
package tool

import (
	"bytes"
	"encoding/json"
	"text/template"

	"github.com/google/jsonschema-go/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/shell"
)

// Directions in which a long output is cut (see Definition.Truncate).
const (
	truncateHead = "head"
	truncateBoth = "both"
)

// Definition is one tool as the daemon knows it.
type Definition struct {
	Name        string
	Description string          // from the tool's Markdown file (see Describe)
	Schema      json.RawMessage // JSON Schema 2020-12 of the input
	// By says who runs its calls.
	By By
	// Needs is what a host or a session may not have; then the session has not the tool.
	Needs Need
	// Hidden tools are run by the daemon's own routes and never listed.
	Hidden bool
	Traits
	// Streams: output arrives while it runs; Result.Output comes after it.
	Streams bool
	// Truncate is the default direction in which a long output is cut.
	Truncate string
	// Paged: the output is a page that the tool has cut to size itself, and says
	// how to go on. It stays as it is, within a bound of the daemon's own.
	Paged bool
	// Shows says what an answer may have in it of files that the call does not name.
	// The rules for "read" decide which.
	Shows Shown
	// Changes: it changes files that the call does not name. The rules for "edit" decide
	// which it may, and those for "read" which it may make others of.
	Changes bool
	// Piped: what it reads and streams goes between the client and the tool, and is kept
	// nowhere. The call ends with its client.
	Piped bool
	// Looks: it can look into one file, such as the whole output of a call.
	Looks bool
	also  aliases
	// alike are names, folded, by which other systems know a tool that does the same.
	alike []string
	// decode makes the Input of the values that Parse has checked and normalised.
	decode func(values) Input
	// check says what the schema cannot of values that fit it; nil says nothing.
	check func(values) []client.Violation
	// paths are the keys of the input that are paths.
	paths []string
	// rename replaces paths that are parts of a value, and reports whether it changed any; nil:
	// there are no such paths.
	rename func(v values, to func(path string) string) bool
	// instead is another tool, with its input, that calls of this one mean whose input has the word
	// insteadOf; nil or "": none.
	instead   func(values) (name string, input values)
	insteadOf string
	// fields words the fields of a copy of input for facts; nil leaves them.
	fields func(*jsonschema.Schema, Facts)

	template *template.Template // of the description
	input    *jsonschema.Schema // what Schema is the JSON of
	shape    *shape
	compiled *validator.Schema
}

// By says who runs the calls of a tool.
type By int

// Who runs calls.
const (
	ByAgent  By = iota // the agent of the session, in its sandbox
	ByDaemon           // the daemon itself: package call/local
)

// Need is what a tool needs of the host or of its session; "" is nothing.
type Need string

// What tools need.
const (
	NeedsSkills  Need = "skills"  // a skill, in a directory of the configuration
	NeedsNetwork Need = "network" // a way out of the session
)

// Shown is what answers of a tool show of files that the call does not name.
type Shown int

// What answers show.
const (
	ShowsNone Shown = iota
	ShowsNames
	ShowsContent
)

// Access says what a call will touch.
type Access struct {
	Requests []Request
	// Links are words that become requests for external_directory where a link is called so that leads to a place
	// which is not the session's own.
	Links []shell.Link
	// Prepare asks for a Prepare in the sandbox before the call is judged.
	Prepare bool
	// Title is what the call is about: the description of a command, or the pattern of
	// a search; "" where that is the command or the path.
	Title string
	// Command is the text of a command.
	Command string
}

// Request is one permission that a call needs.
type Request struct {
	Permission string // "bash", "edit", "read" …
	Pattern    string // what the rules match: command, path, pattern, URL
	Path       string // as the input names it, to be resolved; "" for none
	Write      bool
	// Opaque: Pattern is a whole text that cannot be judged by its parts, so a
	// rule allows it only when its pattern is that text, or "*".
	Opaque bool
	// Search: Pattern is what is looked for, and Path where, "" for all of the worktree.
	Search bool
	// Also are other readings of Pattern, with NULs between, which only what asks or denies is
	// about.
	Also string
	// Prefixed: Pattern begins with harmless variables, and the command without them is a request
	// too, with them as its Variables.
	Prefixed  bool
	Variables string
	// Wraps is that of a command, as shell.Command has it.
	Wraps bool
	// Dir and Apart are those of a command, as shell.Command has them.
	Dir   string
	Apart bool
	// Program is what a command runs, where that is found by a path; nil for others.
	Program *shell.Program
	// Why says to people why Pattern is Opaque.
	Why string
	// Save is the pattern that an approval for always would allow; "" = none is
	// offered.
	Save string
	// Outside: Path is only named, by an argument or a redirect. It becomes a
	// request for external_directory if it resolves to a place that is not the
	// session's own, and none otherwise. Where Path is "" the text does not say
	// what is named, and the request stands.
	Outside bool
	// Weak and Matched: what is named is nothing that the text speaks of (see shell.Path).
	Weak, Matched bool
}

// Invocation is an input that was parsed, checked and normalised: the bytes in JSON are
// those that are judged, hashed, stored and run.
type Invocation struct {
	Tool *Definition
	// JSON is canonical: snake_case keys in sorted order, one spelling of every
	// string and number. Equal calls have equal bytes, and encoding/json writes
	// the value back as the same bytes.
	JSON json.RawMessage
	// Input says the same as JSON; nil where no tool takes it (see Malformed).
	Input Input
	// Lenient counts conversions of loosely typed values.
	Lenient int
	// Aliases are the names of other systems that were replaced: of those that Definition.Aliases
	// gives.
	Aliases []string
}

// Rebase replaces the directory from by to in those values of the input that are
// paths, and reports whether there were any.
func (i *Invocation) Rebase(from, to string) bool {
	if quoted, err := json.Marshal(from); err != nil || !bytes.Contains(i.JSON, bytes.Trim(quoted, `"`)) {
		return false
	}
	tree, bad := readStrict(i.JSON, maxDepth)
	all, ok := tree.(map[string]any)
	if bad != nil || !ok {
		return false
	}
	if !i.Tool.renamed(all, func(path string) string { return below(path, from, to) }) {
		return false
	}
	input, err := json.Marshal(all)
	if err != nil {
		return false
	}
	i.JSON, i.Input = input, i.Tool.decode(all)
	return true
}

// Near is JSON in the form in which calls that repeat each other are equal:
// without what makes no difference to what the call does. It is for comparing
// and hashing only.
func (i *Invocation) Near() json.RawMessage {
	if in, ok := i.Input.(Nearer); ok {
		return in.Near()
	}
	return i.JSON
}

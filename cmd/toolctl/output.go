package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/toold/toold/client"
)

// view is an answer in all forms that -o can ask for.
type view struct {
	// data is what -o json and -o yaml print; its JSON names are the contract.
	data any
	// names are what -o name prints, one per line.
	names []string
	// text prints the form for people.
	text func(w io.Writer)
}

// listView is a list whose items have names.
func listView[T any](items []T, name func(*T) string, text func(w io.Writer)) view {
	return view{data: client.List[T]{Items: items}, names: namesOf(items, name), text: text}
}

// printList shows a list whose items have names. For people, row adds each to t.
func printList[T any](a *app, items []T, name func(*T) string, t *table, row func(*T)) error {
	if a.format == formatName && len(items) == 0 && t.empty != "" {
		a.say("%s", t.empty)
	}
	return a.print(listView(items, name, func(w io.Writer) {
		for i := range items {
			row(&items[i])
		}
		t.write(w)
	}))
}

func namesOf[T any](items []T, name func(*T) string) []string {
	names := make([]string, len(items))
	for i := range items {
		names[i] = name(&items[i])
	}
	return names
}

// print shows v in the form that was asked for.
func (a *app) print(v view) error {
	var err error
	switch a.format {
	case formatJSON:
		err = printJSON(a.stdout, v.data)
	case formatYAML:
		err = printYAML(a.stdout, v.data)
	case formatName:
		for _, n := range v.names {
			if _, err = fmt.Fprintln(a.stdout, line(n)); err != nil {
				break
			}
		}
	default:
		w := &checkedWriter{to: a.stdout}
		v.text(w)
		err = w.err
	}
	return err
}

// printNext shows one of several that come one after the other: each is a line, or a
// document.
func (a *app) printNext(v view) error {
	switch a.format {
	case formatJSON:
		return printJSONLine(a.stdout, v.data)
	case formatYAML:
		if _, err := fmt.Fprintln(a.stdout, "---"); err != nil {
			return err
		}
	}
	return a.print(v)
}

// checkedWriter keeps the first error of a writer, so that nobody else has to look at
// each: a command whose output did not arrive must not seem to have worked.
type checkedWriter struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("write output: %w", err)
	}
	return n, err
}

// close reports that a write failed, or that one fails now: some file systems say so
// only when the file is closed.
func (c *checkedWriter) close() error {
	if f, ok := c.to.(*os.File); ok && c.err == nil {
		if err := f.Close(); err != nil && !errors.Is(err, syscall.EBADF) {
			c.err = fmt.Errorf("write output: %w", err)
		}
	}
	return c.err
}

// printJSON writes v indented. Characters that a terminal would act on are
// written as \u escapes, which changes nothing for a program that reads it.
func printJSON(w io.Writer, v any) error { return writeJSON(w, v, "  ") }

// printJSONLine writes v on one line.
func printJSONLine(w io.Writer, v any) error { return writeJSON(w, v, "") }

func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := w.Write(escapeActing(b.Bytes()))
	return err
}

// escapeActing writes the characters of a JSON text that act on terminals as \u
// escapes. They can only stand inside strings there.
func escapeActing(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || !acts(r):
			out = append(out, text[:n]...)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		}
		text = text[n:]
	}
	return out
}

// printYAML writes the same data as printJSON, with the same names in the same
// order.
func printYAML(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	dec := json.NewDecoder(&b)
	dec.UseNumber()
	node, err := yamlNode(dec)
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	b.Reset()
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	if err := errors.Join(out.Encode(node), out.Close()); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = io.WriteString(w, visibleParts(b.String(), "\n"))
	return err
}

// yamlNode reads one JSON value as YAML, keeping the order of keys.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode}
		if t == '[' {
			n.Kind = yaml.SequenceNode
		}
		for dec.More() { // keys and values alternate in Content, as in the text
			child, err := yamlNode(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := dec.Token()
		return n, err
	case string:
		return yamlString(t), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	}
	n := &yaml.Node{}
	return n, n.Encode(tok)
}

// yamlString quotes what has to be escaped: in double quotes YAML has the escapes of line.
func yamlString(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if strings.ContainsFunc(s, func(r rune) bool { return acts(r) && r != '\n' }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

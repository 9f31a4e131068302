package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toold/toold/internal/tool/run/textdiff"
)

// maxAgentConfig bounds a configuration that is changed, in bytes.
const maxAgentConfig = 4 << 20

// install writes the server into an agent's configuration, shows beforehand what that
// changes, and keeps everything else as it is.
func (m *mcpCommand) install(ctx context.Context, name string, agent *agentConfig, argv []string) error {
	file := agent.path(m.getenv)
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real // a link to where somebody keeps it stays one
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(old) > maxAgentConfig {
		return fmt.Errorf("%s is larger than 4 MiB: paste what --print-config %s prints", line(file), name)
	}
	changed, err := agent.with(old, argv)
	if err != nil {
		return fmt.Errorf("%s was not changed: %w; paste what --print-config %s prints", line(file), err, name)
	}
	if bytes.Equal(old, changed) {
		m.say("%s has it already", line(file))
		return m.try(ctx, argv)
	}
	diff, _ := textdiff.Unified(file, old, changed, textdiff.Between(old, changed), maxAgentConfig)
	fmt.Fprintln(m.stderr, lines(strings.TrimSuffix(diff, "\n")))
	m.noteOn(name, agent)
	if m.asks() {
		key, err := m.askKey(ctx, fmt.Sprintf("y writes %s, n does not", line(file)), "yn")
		if err != nil || key != 'y' {
			return errors.Join(err, errors.New("nothing was written"))
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := replaceFile(file, bytes.NewReader(changed)); err != nil {
		return fmt.Errorf("write %s: %w", line(file), err)
	}
	m.say("%s is written", line(file))
	return m.try(ctx, argv)
}

// with is the configuration old with the server in it. It fails rather than change
// anything else.
func (c *agentConfig) with(old []byte, argv []string) ([]byte, error) {
	if len(bytes.TrimSpace(old)) == 0 {
		return c.text(argv)
	}
	edit, decode := c.withJSON, decodeJSON
	if c.toml {
		edit, decode = withTable, decodeTOML
	}
	before, err := decode(old)
	if err != nil {
		return nil, err
	}
	changed, err := edit(old, argv)
	if err != nil {
		return nil, err
	}
	after, err := decode(changed)
	if err != nil {
		return nil, err
	}
	own, err := c.text(argv)
	if err != nil {
		return nil, err
	}
	want, err := decode(own)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(take(after, c.below), take(want, c.below)) {
		return nil, errors.New("the server cannot be put into it as it is written")
	}
	take(before, c.below)
	if _, own := before[codexLimit]; c.toml && !own {
		delete(after, codexLimit)
	}
	if !reflect.DeepEqual(before, after) {
		return nil, errors.New("it cannot be changed without changing more than the server")
	}
	return changed, nil
}

// take takes the server out of a configuration, with the objects on the way that are empty
// then.
func take(config map[string]any, below []string) any {
	if len(below) == 0 {
		v := config[mcpServer]
		delete(config, mcpServer)
		return v
	}
	inner, ok := config[below[0]].(map[string]any)
	if !ok {
		return nil
	}
	v := take(inner, below[1:])
	if len(inner) == 0 {
		delete(config, below[0])
	}
	return v
}

func decodeJSON(text []byte) (v map[string]any, err error) {
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("it is not plain JSON: %w", err)
	}
	return v, nil
}

func decodeTOML(text []byte) (v map[string]any, err error) {
	if _, err := toml.Decode(string(text), &v); err != nil {
		return nil, fmt.Errorf("it is not TOML: %w", err)
	}
	return v, nil
}

// withTable puts the server into TOML: in place of the table of its name, or at the end. A limit of
// what its tools answer comes before all else, where there is none.
func withTable(old []byte, argv []string) ([]byte, error) {
	before, err := decodeTOML(old)
	if err != nil {
		return nil, err
	}
	table, head := codexTable(argv), fmt.Sprintf("[mcp_servers.%s", mcpServer)
	var out strings.Builder
	if _, own := before[codexLimit]; !own {
		out.WriteString(codexRoot + "\n") // where no table has begun
	}
	inside, written := false, false
	for l := range strings.Lines(string(old)) {
		if t := strings.TrimSpace(l); strings.HasPrefix(t, "[") {
			if inside = strings.HasPrefix(t, head+"]") || strings.HasPrefix(t, head+"."); inside && !written {
				out.WriteString(table)
				written = true
			}
		}
		if !inside {
			out.WriteString(l)
		} else if strings.TrimSpace(l) == "" {
			out.WriteByte('\n')
		}
	}
	if !written {
		text := strings.TrimRight(out.String(), "\n")
		return []byte(text + "\n\n" + table), nil
	}
	return []byte(out.String()), nil
}

// withJSON puts the server into JSON: in place of the one of its name, or as the first.
func (c *agentConfig) withJSON(old []byte, argv []string) ([]byte, error) {
	names := append(append([]string{}, c.below...), mcpServer)
	value := c.server(argv)
	dec := jsontext.NewDecoder(bytes.NewReader(old))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for depth, name := range names {
		at := dec.InputOffset() // behind the brace
		found, err := member(dec, name)
		if err != nil {
			return nil, err
		}
		if !found {
			for _, inner := range slices.Backward(names[depth+1:]) {
				value = map[string]any{inner: value}
			}
			return insertMember(old, int(at), depth+1, name, value)
		}
		if depth < len(names)-1 {
			tok, err := dec.ReadToken()
			if err != nil || tok.Kind() != '{' {
				return nil, fmt.Errorf("%q is not an object", name)
			}
			continue
		}
		raw, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		end := int(dec.InputOffset())
		text, err := indented(value, depth+1)
		return bytes.Join([][]byte{old[:end-len(raw)], text, old[end:]}, nil), err
	}
	return nil, errors.New("no place for the server") // names has at least one
}

// member reads an object up to the value of this name.
func member(dec *jsontext.Decoder, name string) (bool, error) {
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return false, err
		}
		if tok.Kind() == '}' {
			return false, nil
		}
		if tok.String() == name {
			return true, nil
		}
		if err := dec.SkipValue(); err != nil {
			return false, err
		}
	}
}

// insertMember makes a member the first of the object that begins before at.
func insertMember(old []byte, at, depth int, name string, value any) ([]byte, error) {
	text, err := indented(value, depth)
	if err != nil {
		return nil, err
	}
	indent := strings.Repeat("  ", depth)
	first := fmt.Sprintf("\n%s%q: %s", indent, name, text)
	if bytes.HasPrefix(bytes.TrimLeft(old[at:], " \t\r\n"), []byte("}")) {
		first += "\n" + indent[2:]
		at += bytes.IndexByte(old[at:], '}')
		return bytes.Join([][]byte{bytes.TrimRight(old[:at], " \t\r\n"), []byte(first), old[at:]}, nil), nil
	}
	return bytes.Join([][]byte{old[:at], []byte(first + ","), old[at:]}, nil), nil
}

func indented(value any, depth int) ([]byte, error) {
	return json.MarshalIndent(value, strings.Repeat("  ", depth), "  ")
}

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

	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/tool/run/textdiff"
)

// maxAgentConfig bounds a configuration that is changed, in bytes.
const maxAgentConfig = 4 << 20

// configChange is what a file of an agent's configuration is to be.
type configChange struct {
	file      string
	old, text []byte
	kept      []string // what the user has otherwise, which stays
}

// configChanges are those of an agent's files below the home of these variables, and below dir where the
// agent looks for one where it works. None is written yet.
func configChanges(name string, argv []string, getenv func(string) string, dir string) ([]configChange, error) {
	var all []configChange
	for _, f := range filesOf(name, argv) {
		file := f.path(getenv)
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if real, err := filepath.EvalSymlinks(file); err == nil {
			file = real // a link to where somebody keeps it stays one
		}
		old, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if len(old) > maxAgentConfig {
			return nil, fmt.Errorf("%s is larger than 4 MiB: paste what --print-config %s prints", line(file), name)
		}
		text, kept, err := f.with(old)
		if err != nil {
			return nil, fmt.Errorf("nothing was written, as %s cannot be changed: %w; paste what --print-config %s prints", line(file), err, name)
		}
		all = append(all, configChange{file, old, text, kept})
	}
	return all, nil
}

// none reports whether the file has it already.
func (c *configChange) none() bool { return bytes.Equal(c.old, c.text) }

// write makes the change, and the directory of the file.
func (c *configChange) write() error {
	if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
		return err
	}
	if err := replaceFile(c.file, bytes.NewReader(c.text)); err != nil {
		return fmt.Errorf("write %s: %w", line(c.file), err)
	}
	return nil
}

// install writes the server into an agent's configuration, with what turns the agent's own tools off.
// It shows beforehand what that changes, and keeps everything else as it is.
func (m *mcpCommand) install(ctx context.Context, name string, argv []string) error {
	changes, err := configChanges(name, argv, m.getenv, "")
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.none() {
			m.say("%s has it already", line(c.file))
		} else {
			diff, _ := textdiff.Unified(c.file, c.old, c.text, textdiff.Between(c.old, c.text), maxAgentConfig)
			fmt.Fprintln(m.stderr, lines(strings.TrimSuffix(diff, "\n")))
		}
		for _, k := range c.kept {
			m.say("%s: %s", line(c.file), k)
		}
	}
	changes = slices.DeleteFunc(changes, func(c configChange) bool { return c.none() })
	if len(changes) == 0 {
		return m.try(ctx, argv)
	}
	m.noteOn(name)
	if m.asks() {
		key, err := m.askKey(ctx, "y writes that, n does not", "yn")
		if err != nil || key != 'y' {
			return errors.Join(err, errors.New("nothing was written"))
		}
	}
	for _, c := range changes {
		if err := c.write(); err != nil {
			return err
		}
		m.say("%s is written", line(c.file))
	}
	m.say("to take it back, take out the lines that begin with + above")
	return m.try(ctx, argv)
}

// installed writes what install does below a home that is nobody's, and asks nothing.
func installed(name string, argv []string, getenv func(string) string, dir string) error {
	changes, err := configChanges(name, argv, getenv, dir)
	for i := range changes {
		err = errors.Join(err, changes[i].write())
	}
	return err
}

// lacks is what the user's own configuration of an agent has not that install writes.
func (m *mcpCommand) lacks(name string, argv []string) (what []string) {
	for _, f := range filesOf(name, argv) {
		file := f.path(m.getenv)
		old, _ := os.ReadFile(file) // one that cannot be read has nothing
		for _, path := range f.lacks(old) {
			what = append(what, fmt.Sprintf("%s in %s", path, file))
		}
	}
	return what
}

// agentFile is a file of an agent's configuration, and what is written into it.
type agentFile struct {
	agentConfig
	sets []shipped.Setting
}

// server is the value of a setting that is this server: it takes the place of one that is there.
type server struct{ argv []string }

// filesOf are the files of an agent. The first has the servers.
func filesOf(name string, argv []string) []agentFile {
	config := agentConfigs[name]
	files := []agentFile{{config, []shipped.Setting{{Path: append(slices.Clone(config.below), mcpServer), Value: server{argv}}}}}
	agent := shipped.Named(name)
	if agent == nil {
		return files
	}
	for _, s := range agent.Settings {
		at := slices.IndexFunc(files, func(f agentFile) bool { return f.file == s.File || s.File == "" })
		if at < 0 {
			files = append(files, agentFile{agentConfig: agentConfig{file: s.File}})
			at = len(files) - 1
		}
		files[at].sets = append(files[at].sets, s)
	}
	return files
}

// path is where the file is.
func (f *agentFile) path(getenv func(string) string) string {
	if dir := getenv(f.home); f.home != "" && dir != "" {
		return filepath.Join(dir, filepath.Base(f.file))
	}
	return strings.Replace(f.file, "HOME", getenv("HOME"), 1)
}

// language is one in which configurations are written.
type language struct {
	decode func([]byte) (map[string]any, error)
	// value is one as decode gives it.
	value func(f *agentFile, v any) (any, error)
	// put writes one value, at a path whose objects may be there.
	put func(f *agentFile, text []byte, s shipped.Setting, v any) ([]byte, error)
}

func (f *agentFile) language() language {
	if f.toml {
		return language{decodeTOML, (*agentFile).tomlValue, putTOML}
	}
	return language{decodeJSON, (*agentFile).jsonValue, putJSON}
}

// with is the text old with what the file is to have. kept says what it has of its own in that
// place, and keeps. It fails rather than change anything else.
func (f *agentFile) with(old []byte) (text []byte, kept []string, err error) {
	in := f.language()
	text, fresh := old, len(bytes.TrimSpace(old)) == 0
	want := map[string]any{}
	if !fresh {
		if want, err = in.decode(old); err != nil {
			return nil, nil, err
		}
	} else if !f.toml {
		text = []byte("{}\n")
	}
	for _, s := range slices.Backward(f.sets) { // each is put before the others
		v, err := in.value(f, s.Value)
		if err != nil {
			return nil, nil, err
		}
		v, differs, err := merge(want, s, v)
		if err != nil {
			return nil, nil, err
		}
		if differs {
			kept = append(kept, fmt.Sprintf("%s is kept as it is; what turns the agent's own tools off, or lets long answers through, is %s", strings.Join(s.Path, "."), jsonText(s.Value)))
		}
		if v == nil {
			continue
		}
		if text, err = in.put(f, text, s, v); err != nil {
			return nil, nil, err
		}
	}
	after, err := in.decode(text)
	if err != nil {
		return nil, nil, err
	}
	if !reflect.DeepEqual(want, after) {
		return nil, nil, errors.New("it cannot be changed without changing more than that")
	}
	if fresh && !f.toml {
		if s, ok := f.sets[0].Value.(server); ok { // in the order of its fields
			valueAt(want, f.below).(map[string]any)[mcpServer] = f.server(s.argv)
		}
		text, err = json.MarshalIndent(want, "", "  ")
		text = append(text, '\n')
	}
	return text, kept, err
}

// lacks are the paths of what the text has not, or otherwise.
func (f *agentFile) lacks(text []byte) (paths []string) {
	in := f.language()
	have, err := in.decode(text)
	if err != nil || have == nil {
		have = map[string]any{}
	}
	for _, s := range f.sets {
		_, own := s.Value.(server)
		v, err := in.value(f, s.Value)
		was := valueAt(have, s.Path)
		if own && was != nil {
			continue // with flags of its own
		}
		changed, differs, merr := merge(have, s, v)
		if err != nil || merr != nil || differs || changed != nil {
			paths = append(paths, strings.Join(s.Path, "."))
		}
	}
	return paths
}

func valueAt(config map[string]any, path []string) any {
	for _, name := range path[:len(path)-1] {
		config, _ = config[name].(map[string]any)
	}
	return config[path[len(path)-1]]
}

func jsonText(v any) string {
	b, _ := json.Marshal(v) // of a setting
	return string(b)
}

// merge puts a value into a configuration, and gives what is to be written; nil for nothing. differs:
// there is another one, which is the user's.
func merge(config map[string]any, s shipped.Setting, v any) (write any, differs bool, err error) {
	last := len(s.Path) - 1
	for i, name := range s.Path[:last] {
		inner, ok := config[name].(map[string]any)
		if !ok {
			if _, there := config[name]; there {
				return nil, false, fmt.Errorf("%q is not an object", strings.Join(s.Path[:i+1], "."))
			}
			inner = map[string]any{}
			config[name] = inner
		}
		config = inner
	}
	old, there := config[s.Path[last]]
	_, own := s.Value.(server)
	list, adds := s.Value.([]string)
	switch {
	case reflect.DeepEqual(old, v):
		return nil, false, nil
	case !there || own:
	case adds:
		all, ok := old.([]any)
		if !ok {
			return nil, true, nil
		}
		more := slices.Clone(all)
		for _, item := range list {
			if !slices.Contains(more, any(item)) {
				more = append(more, item)
			}
		}
		if len(more) == len(all) {
			return nil, false, nil
		}
		v = more
	default:
		return nil, true, nil
	}
	config[s.Path[last]] = v
	return v, false, nil
}

func (f *agentFile) jsonValue(v any) (out any, err error) {
	if s, ok := v.(server); ok {
		v = f.server(s.argv)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(b, &out)
}

func (f *agentFile) tomlValue(v any) (any, error) {
	text := "x = " + jsonText(v) // numbers, texts and bools are written the same
	if s, ok := v.(server); ok {
		text = strings.Replace(codexTable(s.argv), "[mcp_servers."+mcpServer+"]", "[x]", 1)
	}
	all, err := decodeTOML([]byte(text))
	return all["x"], err
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

// putTOML writes a value of TOML: the server in place of the table of its name, or at the end; a key of
// a table below its head, and one of none before all tables.
func putTOML(_ *agentFile, old []byte, s shipped.Setting, _ any) ([]byte, error) {
	if v, ok := s.Value.(server); ok {
		return withTable(old, v.argv), nil
	}
	key := fmt.Sprintf("%s = %s\n", s.Path[len(s.Path)-1], jsonText(s.Value))
	if s.Why != "" {
		key = "# " + s.Why + "\n" + key
	}
	if len(s.Path) == 1 {
		if len(old) > 0 && (old[0] == '#' || old[0] == '[') {
			key += "\n"
		}
		return append([]byte(key), old...), nil
	}
	head := "[" + strings.Join(s.Path[:len(s.Path)-1], ".") + "]"
	var out strings.Builder
	written := false
	for l := range strings.Lines(string(old)) {
		out.WriteString(l)
		if t, _, _ := strings.Cut(l, "#"); !written && strings.TrimSpace(t) == head {
			if !strings.HasSuffix(l, "\n") {
				out.WriteByte('\n')
			}
			out.WriteString(key)
			written = true
		}
	}
	if !written {
		return []byte(behind(out.String(), head+"\n"+key)), nil
	}
	return []byte(out.String()), nil
}

// behind is a table behind a text.
func behind(text, table string) string {
	if text = strings.TrimRight(text, "\n"); text != "" {
		text += "\n\n"
	}
	return text + table
}

// withTable puts the server into TOML.
func withTable(old []byte, argv []string) []byte {
	table, head := codexTable(argv), fmt.Sprintf("[mcp_servers.%s", mcpServer)
	var out strings.Builder
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
		return []byte(behind(out.String(), table))
	}
	return []byte(out.String())
}

// putJSON writes a value of JSON: in place of the one that is there, or as the first of its object.
func putJSON(f *agentFile, old []byte, s shipped.Setting, value any) ([]byte, error) {
	if v, ok := s.Value.(server); ok {
		value = f.server(v.argv) // in the order of its fields
	}
	names := s.Path
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

package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"syscall"

	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tomltext"
)

// DefaultPath is read when no file is named; it need not exist.
const DefaultPath = "/etc/toold/config.toml"

// maxFile bounds a configuration; the shipped one is under 10 KiB.
const maxFile = 1 << 20

// Load reads the settings: the defaults, over them the file at path, over that
// the overrides in their order. With path "" it reads DefaultPath where that
// exists. An error that wraps *Error lists everything that is wrong; a syntax
// error stands alone, because nothing after it can be trusted.
func Load(path string, overrides ...Override) (*Config, error) {
	doc, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(cmp.Or(path, DefaultPath), doc, overrides...)
}

// Parse is Load for a document that has been read already; name stands for it in
// messages.
func Parse(name string, text []byte, overrides ...Override) (*Config, error) {
	doc, err := tomltext.Parse(name, text)
	if err != nil {
		return nil, err
	}
	c := Default()
	c.origins = origins{doc: doc, overrides: make(map[string]string), follows: make(map[string]bool)}
	d := decoder{at: c.origins}
	d.table(nil, reflect.ValueOf(c).Elem(), doc.Values)
	for _, o := range overrides {
		d.override(c, o)
	}
	c.Notes = d.notes
	c.derive()
	rules, err := policy.FromDocument(doc)
	if err == nil {
		c.Policy = rules
	}
	d.problems = append(d.problems, tomltext.Problems(err)...)
	// A value that could not be read keeps its default, so checking the rest
	// finds no problem that is not there.
	return c, tomltext.Join(append(d.problems, c.problems()...))
}

// derive fills in settings that follow from others where they were not set.
func (c *Config) derive() {
	// One value with two names.
	wall, bash := c.origins.has("limits", "wall"), c.origins.has("tools", "bash", "max_timeout")
	if bash && !wall {
		c.Limits.Wall = c.Tools.Bash.MaxTimeout
	}
	c.boundLimits()
	if !bash {
		c.Tools.Bash.MaxTimeout = c.Limits.Wall
	}
}

// Patient lets a call take as long as one may ask for, unless the setting for that was set:
// for the daemon of one command, which nobody else waits for.
func (c *Config) Patient() {
	if !c.origins.has("limits", "wall") && !c.origins.has("tools", "bash", "max_timeout") {
		c.Limits.Wall = c.Limits.Max.Wall
		c.Tools.Bash.MaxTimeout = c.Limits.Wall
	}
}

// readFile reads a configuration that only its owner (root, or whoever runs
// this) can have written: who can write it decides what agents may do.
func readFile(path string) ([]byte, error) {
	optional := path == ""
	if optional {
		path = DefaultPath
	}
	// O_NONBLOCK: a FIFO must not hang the start.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if err := checkOwnership(path, info); err != nil {
		return nil, err
	}
	doc, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	if len(doc) > maxFile {
		return nil, fmt.Errorf("configuration %s is larger than %d bytes", path, maxFile)
	}
	return doc, nil
}

func checkOwnership(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("configuration %s is not a regular file", path)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || (st.Uid != 0 && int(st.Uid) != os.Geteuid()) {
		return fmt.Errorf("configuration %s belongs to another user: make it root's (chown root %s)", path, path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("configuration %s can be written by others (mode %04o): chmod go-w %s", path, info.Mode().Perm(), path)
	}
	return nil
}

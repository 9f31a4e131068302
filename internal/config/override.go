package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tomltext"
)

// Override is one setting that was not given in the file.
type Override struct {
	Key    string // dotted, e.g. "daemon.socket"
	Value  string // as text; lists are separated by commas
	Source string // the variable or flag, for messages
}

// envPrefix begins every environment variable of toold.
const envPrefix = "TOOLD_"

// EnvName is the environment variable of a key: "limits.open_files" is
// TOOLD_LIMITS_OPEN_FILES.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Keys lists all settings that have a fixed key, in the order of config.toml.
// Tenants have names of their own and hooks none at all; they can be given in the
// file only.
func Keys() []string { return appendKeys(nil, "", reflect.TypeFor[Config]()) }

func appendKeys(keys []string, prefix string, t reflect.Type) []string {
	for _, f := range reflect.VisibleFields(t) {
		name := keyOf(f)
		if name == "" || f.Type.Kind() == reflect.Map || isTables(f.Type) {
			continue
		}
		key := prefix + name
		switch {
		case f.Type.Kind() == reflect.Struct:
			keys = appendKeys(keys, key+".", f.Type)
		default:
			keys = append(keys, key)
		}
	}
	return keys
}

// FromEnv finds the settings in an environment (KEY=VALUE). A variable that begins or is
// spelled like one of ours but is none is a problem: it is a setting that somebody believes
// in. Any other TOOLD_ variable changes nothing, which is a warning, but for those that are
// others' (foreign).
func FromEnv(env []string) (overrides []Override, warnings []tomltext.Problem, err error) {
	byName := make(map[string]string)
	for _, k := range Keys() {
		byName[EnvName(k)] = k
	}
	var problems []tomltext.Problem
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || foreign.MatchString(name) || ofService.MatchString(kv) {
			continue
		}
		if key, ok := byName[name]; ok {
			overrides = append(overrides, Override{Key: key, Value: value, Source: name})
		} else if why := misspelled(name, byName); why != "" {
			problems = append(problems, tomltext.Problem{Source: name, Message: why})
		} else {
			warnings = append(warnings, tomltext.Problem{Source: name, Message: "this variable is no setting and changes nothing: see config.toml for the keys"})
		}
	}
	return overrides, warnings, tomltext.Join(problems)
}

// foreign are TOOLD_ variables that are no settings: those of the client, of compose files and of this repository's
// tests.
var foreign = regexp.MustCompile(`^TOOLD_(SOCKET|TOKEN|IMAGE|TOOLS_IMAGE|WORKTREES|TEST_.*)$`)

// ofService are the variables, with their values, that Kubernetes sets for a Service whose name is toold or begins
// with toold-.
var ofService = regexp.MustCompile(`^TOOLD(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=|PORT=(tcp|udp|sctp)://|PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?=)`)

// misspelled says which setting a variable was meant to be; "" where it is like none.
func misspelled(name string, byName map[string]string) string {
	const seeFile = "see config.toml for the keys; tenants, hooks and policy are set in the file only"
	rest := strings.TrimPrefix(name, envPrefix)
	for _, s := range append(keysOf(reflect.TypeFor[Config]()), "permission", "rule") {
		if strings.HasPrefix(rest, strings.ToUpper(s)+"_") {
			return fmt.Sprintf("no setting of [%s] has this variable: %s", s, seeFile)
		}
	}
	known := slices.Sorted(maps.Keys(byName))
	first, key, _ := strings.Cut(rest, "_")
	if section := plain.Near(first, keysOf(reflect.TypeFor[Config]())); key != "" && len(section) > 0 {
		meant := EnvName(section[0] + "." + key)
		if !slices.Contains(known, meant) {
			return fmt.Sprintf("no setting has this variable: did you mean one of [%s]? %s", section[0], seeFile)
		}
		return "no setting has this variable: did you mean " + meant + "?"
	}
	if near := plain.Near(name, known); len(near) > 0 {
		return "no setting has this variable: did you mean " + near[0] + "?"
	}
	return ""
}

// startKeys are the settings that only a start can change: [start] in config.toml.
var startKeys = []string{
	"daemon.socket", "daemon.socket_group", "daemon.state_dir", "daemon.run_dir", "daemon.log", "metrics.listen",
	"sandbox.driver", "sandbox.runtime", "sandbox.rootfs", "sandbox.host_paths", "sandbox.uid_base",
	"audit.path", "audit.mode", "audit.inputs", "audit.rotate",
}

// KeepStarted sets those settings that only a start can change to what they were, and
// names the ones that differed.
func (c *Config) KeepStarted(old *Config) (differed []string) {
	for _, key := range startKeys {
		v, was := c.setting(key), old.setting(key)
		if !reflect.DeepEqual(v.Interface(), was.Interface()) {
			differed = append(differed, key)
			v.Set(was)
		}
	}
	return differed
}

// setting is the value of one of Keys.
func (c *Config) setting(key string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(key, ".") {
		v, _ = fieldOf(v, name)
	}
	return v
}

// override sets one key from text.
func (d *decoder) override(c *Config, o Override) {
	path := strings.Split(o.Key, ".")
	d.at.overrides[o.Key] = o.Source
	if !slices.Contains(Keys(), o.Key) {
		d.problem(path, "unknown key %s", o.Key)
		return
	}
	v := c.setting(o.Key)
	raw, err := parseText(v, o.Value)
	if err == nil {
		err = assign(v, raw)
	}
	if err != nil {
		d.problem(path, "%s: %v", o.Key, err)
	}
}

// parseText makes of text what the TOML decoder would have made, so that assign
// checks both alike.
func parseText(v reflect.Value, text string) (any, error) {
	switch v.Interface().(type) {
	case client.Size, client.Duration:
		return text, nil
	}
	switch v.Kind() {
	case reflect.Bool:
		switch text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, wants("true or false", text)
	case reflect.Int, reflect.Int64, reflect.Uint32:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, wants("a whole number", text)
		}
		return n, nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, wants("a number", text)
		}
		return f, nil
	case reflect.Slice:
		return parseListText(v, text)
	}
	return text, nil
}

func parseListText(v reflect.Value, text string) (any, error) {
	items := []any{}
	if text == "" {
		return items, nil
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	for part := range strings.SplitSeq(text, ",") {
		item, err := parseText(elem, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

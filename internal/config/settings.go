package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/toold/toold/client"
)

// TOML gives all settings under their names, as a file that could be loaded again.
// Rules, profiles and hooks are not in it.
func (c *Config) TOML() ([]byte, error) {
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(settingsOf("", reflect.ValueOf(*c))); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return text.Bytes(), nil
}

// settingsOf gives a value of the configuration as people write it: durations
// and sizes as text, and without what this version has no setting for. key is
// the value's own.
func settingsOf(key string, v reflect.Value) any {
	switch x := v.Interface().(type) {
	case client.Duration:
		return x.String()
	case client.Size:
		return x.String()
	}
	m := make(map[string]any)
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			name, value := keyOf(f), v.FieldByIndex(f.Index)
			if below := strings.TrimPrefix(key+"."+name, "."); name != "" && isSetting(below, value) {
				m[name] = settingsOf(below, value)
			}
		}
		return m
	case reflect.Map: // tenants, by name
		for k, value := range v.Seq2() {
			m[k.String()] = settingsOf(tenantKey, value)
		}
		return m
	}
	return v.Interface()
}

// tenantKey is the key of all tenants; what is not set for one is left out.
const tenantKey = "tenant"

func isSetting(key string, v reflect.Value) bool {
	if strings.HasPrefix(key, tenantKey) {
		return !v.IsZero()
	}
	return slices.ContainsFunc(Keys(), func(k string) bool { return k == key || strings.HasPrefix(k, key+".") })
}

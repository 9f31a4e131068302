package run

import "encoding/json"

// settingsOf reads the part of the configuration that is about the tool.
func settingsOf[T any](env *Env) (T, error) {
	var s T
	if len(env.Settings) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(env.Settings, &s); err != nil {
		return s, Errorf(CodeInternal, "the tool's settings cannot be read: %v", err)
	}
	return s, nil
}

package wire

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

// Clean makes s valid UTF-8. Control characters stay: they are data, and whoever
// shows them escapes them.
func Clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func cleanMap(m map[string]any) map[string]any {
	for k, v := range m {
		if c := Clean(k); c != k {
			delete(m, k)
			k = c
		}
		m[k] = cleanValue(v)
	}
	return m
}

// cleanValue leaves only what JSON can say.
func cleanValue(v any) any {
	switch v := v.(type) {
	case string:
		return Clean(v)
	case []byte:
		return hex.EncodeToString(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return v
	case map[string]any:
		return cleanMap(v)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}
		return v
	case nil, bool, int64:
		return v
	default:
		return Clean(fmt.Sprint(v))
	}
}

// Cut bounds a message to what a person may want to read.
func Cut(s string) string {
	const most = 16 << 10
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

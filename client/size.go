package client

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. In JSON it is read from a number or from a string
// such as "256MiB", "2GiB", "64KB" or "1024", and written as a number.
type Size int64

var sizeUnits = []struct {
	suffix string
	factor float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// ParseSize reads a size as people write it, Kubernetes' Ki, Mi, Gi and Ti too. It refuses
// negative and overflowing values, unknown units, and units of which docker and Kubernetes
// do not agree what they are.
func ParseSize(s string) (Size, error) {
	text := strings.TrimSpace(s)
	digits := strings.TrimRight(text, "KMGTiBkmgtb")
	unit, num := text[len(digits):], strings.TrimSpace(digits)
	f, err := strconv.ParseFloat(num, 64)
	bad := err != nil || math.IsNaN(f) || f < 0
	factor, known := 1.0, unit == ""
	for _, u := range sizeUnits {
		if unit == u.suffix || unit == strings.TrimSuffix(u.suffix, "B") && strings.HasSuffix(unit, "i") {
			factor, known = u.factor, true
		}
	}
	switch {
	case !bad && !known && len(unit) <= 3 && strings.ContainsAny(unit[:1], "KMGTkmgt"):
		of := strings.ToUpper(unit[:1])
		return 0, fmt.Errorf("%q is not a size here, as programs differ in what it is: write %s%siB (binary) or %s%sB (decimal)", s, num, of, num, of)
	case bad, !known, f*factor > math.MaxInt64/2:
		return 0, fmt.Errorf("%q is not a size: write bytes or a number with KiB, MiB, GiB or TiB", s)
	}
	return Size(f * factor), nil
}

// String prints the size in the largest binary unit that is exact, else in bytes.
func (s Size) String() string {
	for _, unit := range slices.Backward(sizeUnits[:4]) {
		if u := Size(unit.factor); s >= u && s%u == 0 {
			return strconv.FormatInt(int64(s/u), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// UnmarshalJSON reads a number of bytes or a string with a unit.
func (s *Size) UnmarshalJSON(b []byte) error {
	str := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &str); err != nil {
			return err
		}
	}
	v, err := ParseSize(str)
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Duration is a time span. In JSON a number is milliseconds, and a string has its
// unit, such as "30s"; it is written as milliseconds.
type Duration time.Duration

// ParseDuration reads "30s", "1h30m", "500ms" or "30d". A number alone is refused,
// since nobody agrees on its unit; only 0 needs none. Negative values are allowed:
// some settings use them for "never".
func ParseDuration(s string) (Duration, error) {
	s = strings.TrimSpace(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && math.Abs(n) < 36500 {
			return Duration(n * 24 * float64(time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(s)
	switch {
	case err == nil:
		return Duration(d), nil
	case strings.ContainsAny(s, "0123456789") && strings.Trim(s, "+-.0123456789") == "":
		return 0, fmt.Errorf("%s what? write %ss", s, s)
	}
	return 0, fmt.Errorf("%q is not a duration: write a number with ms, s, m, h or d", s)
}

// String prints the duration as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes whole milliseconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(d).Milliseconds(), 10), nil
}

// UnmarshalJSON reads milliseconds or a string with units.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '"' {
		ms, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return fmt.Errorf("%s is not a duration: write whole milliseconds, or a string such as \"30s\"", b)
		}
		if ms > math.MaxInt64/int64(time.Millisecond) || ms < math.MinInt64/int64(time.Millisecond) {
			return fmt.Errorf("%d ms is too long a duration", ms)
		}
		*d = Duration(time.Duration(ms) * time.Millisecond)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*d = v
	return nil
}

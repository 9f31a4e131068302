package client

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Size
		ok   bool
	}{
		{"0", 0, true},
		{"1024", 1024, true},
		{"1024B", 1024, true},
		{"64KB", 64000, true},
		{"64KiB", 64 << 10, true},
		{"256MiB", 256 << 20, true},
		{"2GiB", 2 << 30, true},
		{"2 GiB", 2 << 30, true},
		{" 2GiB ", 2 << 30, true},
		{"1.5GiB", 3 << 29, true},
		{"1TiB", 1 << 40, true},
		{"3MB", 3e6, true},
		{"3GB", 3e9, true},
		{"3TB", 3e12, true},
		{"1e3", 1000, true},
		{"512Mi", 512 << 20, true},
		{"1Gi", 1 << 30, true},
		{"4 Ki", 4 << 10, true},
		{"1Ti", 1 << 40, true},
		{"", 0, false},
		{"i", 0, false},
		{"5i", 0, false},
		{"5Bi", 0, false},
		{"B", 0, false},
		{"GiB", 0, false},
		{"-1", 0, false},
		{"-0.5GiB", 0, false},
		{"2gib", 0, false},
		{"2G", 0, false},
		{"2GiBB", 0, false},
		{"two", 0, false},
		{"NaN", 0, false},
		{"Inf", 0, false},
		{"1e30", 0, false},
		{"99999999TiB", 0, false},
	} {
		got, err := ParseSize(tt.text)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d, ok=%v", tt.text, got, err, tt.want, tt.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "is not a size") {
			t.Errorf("ParseSize(%q): %v, want an error that says what to write", tt.text, err)
		}
	}
}

// TestForeignSizes: a unit that docker and Kubernetes read in two ways, or that only one of them knows, is
// refused with both things that it may have meant.
func TestForeignSizes(t *testing.T) {
	for _, unit := range []string{"K", "M", "G", "T"} {
		for _, foreign := range []string{unit, strings.ToLower(unit), strings.ToLower(unit) + "b", strings.ToLower(unit) + "ib", unit + "b", unit + "I", strings.ToLower(unit) + "i"} {
			if foreign == unit+"I" {
				continue // no digit's neighbour: it is no unit of anybody's
			}
			_, err := ParseSize("1.5" + foreign)
			if want := "write 1.5" + unit + "iB (binary) or 1.5" + unit + "B (decimal)"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("1.5%s: %v, want %q", foreign, err, want)
			}
		}
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[Size]string{
		0: "0B", 1: "1B", 1023: "1023B", 1024: "1KiB", 1025: "1025B", 1536: "1536B", 256 << 20: "256MiB", 2 << 30: "2GiB", 1 << 40: "1TiB",
		3 << 29: "1536MiB", 64000: "64000B",
	} {
		got := size.String()
		if got != want {
			t.Errorf("Size(%d) = %q, want %q", int64(size), got, want)
		}
		if back, err := ParseSize(got); err != nil || back != size {
			t.Errorf("%q reads as %d, %v; want %d", got, back, err, size)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"0", 0, true},
		{"-0", 0, true},
		{"0d", 0, true},
		{"1500", 0, false},
		{"-1", 0, false},
		{"30s", 30 * time.Second, true},
		{"1h30m", 90 * time.Minute, true},
		{"500ms", 500 * time.Millisecond, true},
		{"30d", 30 * 24 * time.Hour, true},
		{"0.5d", 12 * time.Hour, true},
		{" 5s ", 5 * time.Second, true},
		{"-1s", -time.Second, true},
		{"", 0, false},
		{"s", 0, false},
		{"d", 0, false},
		{"1", 0, false},
		{"1.5", 0, false},
		{"5 s", 0, false},
		{"soon", 0, false},
		{"9223372036854775807", 0, false},
		{"-9223372036854775808", 0, false},
		{"1e9d", 0, false},
		{"NaNd", 0, false},
		{"9999999h", 0, false},
	} {
		got, err := ParseDuration(tt.text)
		if (err == nil) != tt.ok || time.Duration(got) != tt.want {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s, ok=%v", tt.text, got, err, tt.want, tt.ok)
		}
	}
	for text, want := range map[string]string{
		"5":    "5 what? write 5s",
		" -1 ": "-1 what? write -1s",
		"1.5":  "1.5 what? write 1.5s",
		"soon": `"soon" is not a duration: write a number with ms, s, m, h or d`,
		"":     `"" is not a duration: write a number with ms, s, m, h or d`,
	} {
		if _, err := ParseDuration(text); err == nil || err.Error() != want {
			t.Errorf("ParseDuration(%q): %v, want %s", text, err, want)
		}
	}
}

// TestLimitsJSON: sizes and durations are read as numbers and as strings, and
// written as numbers.
func TestLimitsJSON(t *testing.T) {
	for text, want := range map[string]Limits{
		`{"memory":268435456,"wall":30000}`:     {Memory: 256 << 20, Wall: Duration(30 * time.Second)},
		`{"memory":"256MiB","wall":"30s"}`:      {Memory: 256 << 20, Wall: Duration(30 * time.Second)},
		`{"memory":"\u0032GiB","wall":"1m30s"}`: {Memory: 2 << 30, Wall: Duration(90 * time.Second)},
	} {
		var got Limits
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		`{"memory":-1}`, `{"memory":"x"}`, `{"memory":true}`, `{"memory":null}`, `{"memory":[]}`, `{"memory":"\ud800GiB"}`,
		`{"wall":"x"}`, `{"wall":1.5}`, `{"wall":null}`, `{"wall":{}}`, `{"wall":1e400}`,
	} {
		var got Limits
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s was read as %+v", text, got)
		}
	}
	for _, text := range []string{`{"wall":0}`, `{"wall":"0"}`} {
		got := Limits{Wall: 1}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Wall != 0 {
			t.Errorf("%s = %+v, %v", text, got, err)
		}
	}
	var l Limits
	if err := json.Unmarshal([]byte(`{"wall":"5"}`), &l); err == nil || !strings.Contains(err.Error(), "5 what? write 5s") {
		t.Errorf("a bare number in a string: %v, %+v", err, l)
	}
	b, err := json.Marshal(Limits{Memory: 256 << 20, Wall: Duration(30 * time.Second)})
	if err != nil || string(b) != `{"memory":268435456,"wall":30000}` {
		t.Errorf("written as %s, %v", b, err)
	}
	if s := Duration(90 * time.Second).String(); s != "1m30s" {
		t.Errorf("String() = %q", s)
	}
}

// FuzzSizes: any text is refused or gives a value that survives being written
// and read again.
func FuzzSizes(f *testing.F) {
	for _, s := range []string{"256MiB", "1.5GiB", "-1", "30s", "30d", "1e3", "NaN", "9223372036854775807", "0x10", "1_000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil {
			if back, err := ParseSize(n.String()); err != nil || n < 0 || back != n && n < 1<<53 || math.Abs(float64(back-n)) > float64(n)/1e9 {
				t.Errorf("%q is %d, written as %q, and that is %d, %v", s, n, n, back, err)
			}
		}
		if d, err := ParseDuration(s); err == nil {
			b, err := json.Marshal(d)
			var back Duration
			if err != nil || json.Unmarshal(b, &back) != nil || time.Duration(back) != time.Duration(d).Truncate(time.Millisecond) {
				t.Errorf("%q is %s, written as %s, and that is %s", s, d, b, back)
			}
		}
	})
}

package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/toold/toold/client"
)

const hostile = "a\x1b[2J\u202eb\u009b\u2028\U000e0041\x7f\n\ttrue"

// JSON and YAML say exactly what the value is, in characters that no terminal
// acts on.
func TestStructuredOutputIsSafeAndExact(t *testing.T) {
	in := map[string]any{"k\x1b": hostile, "list": []any{"123", "", "- x", "# y", "null"}, "n": 12345678901, "t": true, "z": nil}
	for name, c := range map[string]struct {
		print func(*bytes.Buffer) error
		read  func([]byte, any) error
	}{
		"json": {func(b *bytes.Buffer) error { return printJSON(b, in) }, json.Unmarshal},
		"line": {func(b *bytes.Buffer) error { return printJSONLine(b, in) }, json.Unmarshal},
		"yaml": {func(b *bytes.Buffer) error { return printYAML(b, in) }, yaml.Unmarshal},
	} {
		var b bytes.Buffer
		if err := c.print(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkSafe(t, b.Bytes(), "\n")
		var out map[string]any
		if err := c.read(b.Bytes(), &out); err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, b.String())
		}
		if out["k\x1b"] != hostile || out["list"].([]any)[0] != "123" || out["list"].([]any)[4] != "null" || out["t"] != true || out["z"] != nil {
			t.Errorf("%s: got %q", name, out)
		}
	}
}

func FuzzStructuredOutput(f *testing.F) {
	f.Add(hostile)
	f.Add("a\u202eb") // YAML would leave it as it is
	f.Add("2026-01-02")
	f.Add("\ufeff: - ? | >\r\n \n")
	f.Fuzz(func(t *testing.T, s string) {
		var wantJSON string
		b, _ := json.Marshal(s) // invalid UTF-8 becomes U+FFFD, here as there
		_ = json.Unmarshal(b, &wantJSON)
		for name, c := range map[string]struct {
			print func(*bytes.Buffer) error
			read  func([]byte, any) error
		}{
			"json": {func(b *bytes.Buffer) error { return printJSON(b, []string{s}) }, json.Unmarshal},
			"yaml": {func(b *bytes.Buffer) error { return printYAML(b, []string{s}) }, yaml.Unmarshal},
		} {
			var out bytes.Buffer
			if err := c.print(&out); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			checkSafe(t, out.Bytes(), "\n")
			var got []string
			if err := c.read(out.Bytes(), &got); err != nil || len(got) != 1 || got[0] != wantJSON {
				t.Fatalf("%s: %q came back as %q (%v) from\n%s", name, s, got, err, out.String())
			}
		}
	})
}

func TestYAMLKeepsOrder(t *testing.T) {
	var b bytes.Buffer
	if err := printYAML(&b, client.Garbage{Kind: "mount", Name: "x", Removed: true}); err != nil {
		t.Fatal(err)
	}
	if want := "kind: mount\nname: x\nremoved: true\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestTable(t *testing.T) {
	for _, c := range []struct {
		app  app
		want string
	}{
		{app{}, "ID   NAME\na    -\nbbb  x\\x1b[31m\ny\u0301    ü\n"},
		{app{outTTY: true}, "ID   NAME\n\x1b[32ma\x1b[0m    -\nbbb  x\\x1b[31m\ny\u0301    ü\n"},
	} {
		c.app.getenv = func(string) string { return "" }
		tab := c.app.newTable("none", "ID", "NAME")
		tab.row("a", "")
		tab.paint(0, colorGreen)
		tab.row("bbb", "x\x1b[31m")
		tab.row("y\u0301", "ü")
		var b bytes.Buffer
		tab.write(&b)
		if b.String() != c.want {
			t.Errorf("got\n%q, want\n%q", b.String(), c.want)
		}
	}
}

func TestColor(t *testing.T) {
	for _, c := range []struct {
		tty  bool
		env  map[string]string
		want bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"TERM": "dumb"}, false},
	} {
		a := app{outTTY: c.tty, getenv: func(k string) string { return c.env[k] }}
		if got := a.color(); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestBytesShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 812: "812B", 1023: "1.0KiB", 3 << 20: "3.0MiB", 99 << 30: "99GiB", 1 << 62: "4.0EiB"} {
		if got := bytesShort(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

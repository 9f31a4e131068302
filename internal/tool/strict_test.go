package tool

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

func TestParseStrictNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "12": "12", "-7": "-7", "1.0": "1", "1e2": "100", "1E+2": "100", "120e-1": "12",
		"1.5": "1.5", "0.1": "0.1", "0.10": "0.1", "1e-7": "1e-07", "123456789012345678": "123456789012345678",
		"9223372036854775807": "9223372036854775807", "-9223372036854775808": "-9223372036854775808",
		"1e19": "1e+19", "1.7976931348623157e308": "1.7976931348623157e+308", "1e-400": "0",
		// refused:
		"9223372036854775808": "", "1e309": "", "01": "", "+1": "", "1.": "", ".5": "", "1e": "", "1e+": "", "--1": "",
		"0x10": "", "NaN": "", "Infinity": "", "-": "", "1_000": "", "1" + strings.Repeat("0", 5000): "",
	} {
		v, err := parseStrict(in, maxDepth)
		if want == "" {
			if err == nil {
				t.Errorf("%.30s was read as %v", in, v)
			}
			continue
		}
		if err != nil || v != json.Number(want) {
			t.Errorf("%s: got %v, %v, want %s", in, v, err, want)
		}
	}
}

func TestParseStrictRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                    "unexpected end of JSON, expected a value",
		" ":                                   "unexpected end",
		"{":                                   "expected a key in double quotes",
		`{"a"`:                                "expected ':'",
		`{"a":`:                               "expected a value",
		`{"a":1`:                              "expected ',' or '}'",
		`{"a":1,}`:                            "unexpected '}', expected a key",
		`{a:1}`:                               "unexpected 'a', expected a key",
		`[1`:                                  "expected ',' or ']'",
		`[1,]`:                                "unexpected ']', expected a value",
		`[1 2]`:                               "unexpected '2', expected ',' or ']'",
		`"a`:                                  "expected the end of a string",
		`"a\`:                                 "expected an escape",
		`"\n` + "\n":                          "control character U+000A",
		`"\x"`:                                `unknown escape \x`,
		`"\u12"`:                              "four hexadecimal digits",
		`"\u12+4"`:                            "four hexadecimal digits",
		`"\ud800\u0041"`:                      "surrogate",
		`"\udc00"`:                            "surrogate",
		`"\u0000"`:                            "NUL",
		"tru":                                 "unexpected 't', expected a value",
		"truex":                               "after the end",
		"\xef\xbb\xbf{}":                      "unexpected '\\ufeff'",
		"{} // no":                            "after the end",
		`{"ſ":1,"s":2}`:                       "differ only in case",
		`{"a":{"b":1,"b":2}}`:                 "appears twice",
		strings.Repeat("[", 65):               "deeper than 64",
		"[" + strings.Repeat("0,", maxValues): "more than 131072 values",
	} {
		v, err := parseStrict(in, maxDepth)
		if err == nil {
			t.Errorf("%.40q was read as %.40v", in, v)
		} else if got := err.violation().Message; !strings.Contains(got, want) {
			t.Errorf("%.40q: got %q, want %q", in, got, want)
		}
	}
}

// plainDecode is what encoding/json makes of text, without loss of precision.
func plainDecode(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, err
	}
	return v, nil
}

// sameValue compares numbers by what they are and all else by what they say.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		bn, ok := b.(json.Number)
		if !ok {
			return false
		}
		af, aerr := a.Float64()
		bf, berr := bn.Float64()
		return aerr == nil && berr == nil && af == bf
	case map[string]any:
		bm, ok := b.(map[string]any)
		if !ok || len(a) != len(bm) {
			return false
		}
		for k, v := range a {
			if w, there := bm[k]; !there || !sameValue(v, w) {
				return false
			}
		}
		return true
	case []any:
		bl, ok := b.([]any)
		if !ok || len(a) != len(bl) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], bl[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// FuzzParseStrict: what is accepted, encoding/json reads as the same value, and
// the canonical form is a fixed point of both.
func FuzzParseStrict(f *testing.F) {
	for _, seed := range []string{
		`{"command":"ls","timeout":1e3}`, `[1,-0.0,1e19,1e-7,"\ud83d\ude00\/",true,null,{}]`, `{"a":1,"A":2}`,
		`{"k":1,"\u212a":2}`, `"\ud800"`, "\"\xff\"", `[[[[]]]]`, `9223372036854775808`, `123456789.123456789e-5`, `"<>&\u2028"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, serr := parseStrict(string(text), maxDepth)
		if serr != nil {
			if serr.offset < 0 || serr.offset > len(text) {
				t.Fatalf("offset %d of %d", serr.offset, len(text))
			}
			return
		}
		plain, err := plainDecode(text)
		if err != nil || !sameValue(v, plain) {
			t.Fatalf("%q: read as %v, encoding/json as %v, %v", text, v, plain, err)
		}
		canonical, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		again, serr := parseStrict(string(canonical), maxDepth)
		if serr != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%q: canonical form %q is read as %v, %v", text, canonical, again, serr)
		}
		if twice, _ := json.Marshal(json.RawMessage(canonical)); !bytes.Equal(twice, canonical) {
			t.Fatalf("encoding/json writes %q as %q", canonical, twice)
		}
	})
}

// FuzzParse: no input makes Parse panic, and what it gives it takes again as it is.
func FuzzParse(f *testing.F) {
	r := NewRegistry()
	for _, seed := range []string{
		`{"command":"ls"}`, `{"filePath":"a","limit":"3"}`, `{"ignore":"[\"a\"]"}`, `"{\"pattern\":\"x\"}"`,
		`{"file_path":"a","oldString":"","new_string":"b","replaceAll":"true"}`, `{"pattern":"x","context":null}`,
	} {
		f.Add(uint8(len(seed)), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		d := r.tools[int(which)%len(r.tools)]
		inv, err := r.ParseHidden(d.Name, text)
		if err != nil {
			return
		}
		again, err := r.ParseHidden(d.Name, inv.Input)
		if err != nil || again.Lenient != 0 || !bytes.Equal(again.Input, inv.Input) {
			t.Fatalf("%s of %q: %q is then %+v, %v", d.Name, text, inv.Input, again, err)
		}
		d.Access(inv.Input, nil)
	})
}

// FuzzFoldKey: keys that encoding/json would take for the same field of a
// struct fold to the same.
func FuzzFoldKey(f *testing.F) {
	f.Add("Command", "COMMAND")
	f.Add("k", "\u212a")
	f.Add("straße", "STRASSE")
	f.Fuzz(func(t *testing.T, a, b string) {
		if got, want := foldKey(a) == foldKey(b), strings.EqualFold(a, b); got != want {
			t.Fatalf("%q and %q: got %v, want %v", a, b, got, want)
		}
	})
}

func TestFoldRuneAll(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if f := unicode.SimpleFold(r); foldRune(f) != foldRune(r) {
			t.Fatalf("%U and %U do not fold to the same", r, f)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	r := NewRegistry()
	for name, in := range map[string]struct{ tool, input string }{
		"bash": {"bash", `{"command":"git status --short","description":"Show what changed","timeout":5000}`},
		"grep": {"grep", `{"pattern":"func \\w+","path":"internal","include":"*.go","output_mode":"files","limit":"20","ignoreCase":true}`},
		"edit": {"edit", `{"filePath":"/workspace/a.go","oldString":"a := 1\n\tb := 2\n","newString":"a, b := 1, 2\n"}`},
		"1MiB": {"write", `{"file_path":"x","content":"` + strings.Repeat("some text\\n", 100000) + `"}`},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Parse(in.tool, json.RawMessage(in.input)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

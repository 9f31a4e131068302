package strictjson

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

const maxValues = 1 << 17

func read(text string) (any, *Error) { return Read([]byte(text), Rules{Depth: 64, Values: maxValues}) }

func TestReadNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "12": "12", "-7": "-7", "1.0": "1", "1e2": "100", "1E+2": "100", "120e-1": "12",
		"1.5": "1.5", "0.1": "0.1", "0.10": "0.1", "1e-7": "1e-07", "123456789012345678": "123456789012345678",
		"9223372036854775807": "9223372036854775807", "-9223372036854775808": "-9223372036854775808",
		"1e19": "1e+19", "1.7976931348623157e308": "1.7976931348623157e+308", "1e-400": "0",
		// refused:
		"9223372036854775808": "", "1e309": "", "01": "", "+1": "", "1.": "", ".5": "", "1e": "", "1e+": "", "--1": "",
		"0x10": "", "NaN": "", "Infinity": "", "-": "", "1_000": "", "1" + strings.Repeat("0", 5000): "",
	} {
		v, err := read(in)
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

func TestReadRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                    "unexpected end of JSON",
		" ":                                   "unexpected end",
		"{":                                   "unexpected end",
		`{"a"`:                                "unexpected end",
		`{"a":`:                               "unexpected end",
		`{"a":1`:                              "unexpected end",
		`{"a":1,}`:                            "invalid character ','",
		`{a:1}`:                               "invalid character 'a'",
		`[1`:                                  "unexpected end",
		`[1,]`:                                "invalid character ','",
		`[1 2]`:                               "invalid character '2' after array element (expecting ',' or ']')",
		`"a`:                                  "unexpected end",
		`"a\`:                                 "unexpected end",
		`"\n` + "\n":                          `invalid character '\n' in string`,
		`"\x"`:                                "invalid escape sequence `\\x`",
		`"\u12"`:                              "invalid escape sequence",
		`"\u12+4"`:                            "invalid escape sequence",
		`"\ud800\u0041"`:                      "surrogate",
		`"\udc00"`:                            "surrogate",
		`"\u0000"`:                            "NUL",
		"tru":                                 "unexpected end",
		"truex":                               "after the end",
		"\xef\xbb\xbf{}":                      `invalid character '\ufeff'`,
		"{} // no":                            "after the end",
		`{"ſ":1,"s":2}`:                       "differ only in case",
		`{"a":{"b":1,"b":2}}`:                 "appears twice",
		strings.Repeat("[", 65):               "deeper than 64",
		"[" + strings.Repeat("0,", maxValues): "more than 131072 values",
	} {
		v, err := read(in)
		if err == nil {
			t.Errorf("%.40q was read as %.40v", in, v)
		} else if got := err.Msg; !strings.Contains(got, want) {
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

// FuzzRead: what is accepted, encoding/json reads as the same value, and
// the canonical form is a fixed point of both.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"command":"ls","timeout":1e3}`, `[1,-0.0,1e19,1e-7,"\ud83d\ude00\/",true,null,{}]`, `{"a":1,"A":2}`,
		`{"k":1,"\u212a":2}`, `"\ud800"`, "\"\xff\"", `[[[[]]]]`, `9223372036854775808`, `123456789.123456789e-5`, `"<>&\u2028"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, serr := read(string(text))
		if serr != nil {
			if serr.Offset < 0 || serr.Offset > len(text) {
				t.Fatalf("offset %d of %d", serr.Offset, len(text))
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
		again, serr := read(string(canonical))
		if serr != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%q: canonical form %q is read as %v, %v", text, canonical, again, serr)
		}
		if twice, _ := json.Marshal(json.RawMessage(canonical)); !bytes.Equal(twice, canonical) {
			t.Fatalf("encoding/json writes %q as %q", canonical, twice)
		}
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

// TestReadLikeEncodingJSON: of random texts, lax rules take those that encoding/json
// takes, but for equal keys; strict ones take only such, with the same value, and their
// errors stand in the text.
func TestReadLikeEncodingJSON(t *testing.T) {
	parts := strings.Split(`{ } [ ] , : "a" "b" "A" 1 - 0 1.5 1e5 . e true fals null " \ \u \u0000 \ud800 \udc00 00 d83d é ſ "s" \n \x "k": "j":1, 1e400 99999999999999999999 [1, {"z":`, " ")
	parts = append(parts, " ", "\n", "\x01", "\xff", "\x00", "\u2028")
	rnd := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 300_000 {
		var text []byte
		for range 1 + rnd.IntN(9) {
			text = append(text, parts[rnd.IntN(len(parts))]...)
		}
		rules := Rules{Depth: 64, Values: maxValues, Lax: true}
		_, err := Read(text, rules)
		if valid := json.Valid(text); valid != (err == nil || err.Kind == Twice) && (err == nil || err.Kind != Twice) {
			t.Fatalf("%q: %v, and for encoding/json it is valid: %v", text, err, valid)
		}
		rules.Lax = false
		v, err := Read(text, rules)
		if err != nil {
			if err.Offset < 0 || err.Offset > len(text) {
				t.Fatalf("%q: %+v", text, err)
			}
			continue
		}
		read++
		if plain, perr := plainDecode(text); perr != nil || !sameValue(v, plain) {
			t.Fatalf("%q: read as %v, encoding/json as %v, %v", text, v, plain, perr)
		}
	}
	if read == 0 {
		t.Fatal("no text was taken")
	}
}

// TestReadShape: what is raw comes as it stands, and unknown keys are refused.
func TestReadShape(t *testing.T) {
	rules := Rules{Depth: 2, Values: 4, Lax: true, Shape: &Shape{Fields: map[string]*Shape{"in": {Raw: true}, "a": {Elem: nil}}}}
	for text, want := range map[string]string{
		`{"in": {"x":[[1]],"x":2} ,"a":[1]}`: "",
		`{"in":1,"b":2}`:                     `/b: unknown key "b"`,
		`{"In":1}`:                           `/In: unknown key "In"`,
		`{"in":1,"in":2}`:                    `/in: the key "in" appears twice`,
		`{"a":[[1]]}`:                        "/a/0: nested deeper than 2 levels",
		`{"a":[1,2,3]}`:                      "/a/2: more than 4 values",
		`{"in":}`:                            "/in: invalid character '}' at start of value",
		`{"a":1} 2`:                          ": unexpected data after the end of the JSON value",
	} {
		v, err := Read([]byte(text), rules)
		if want == "" {
			if raw, _ := v.(map[string]any)["in"].(json.RawMessage); err != nil || string(raw) != `{"x":[[1]],"x":2}` {
				t.Errorf("%s: %v, %v", text, v, err)
			}
			continue
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	if !IsObject([]byte(` {"a":1,"a":2} `)) || IsObject([]byte(`[]`)) || IsObject([]byte(`{} {}`)) || IsObject(nil) {
		t.Error("IsObject does not know objects")
	}
}

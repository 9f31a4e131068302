package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

var callShape = shapeOf(reflect.TypeFor[client.CallCreate]())

func TestDecodeStrict(t *testing.T) {
	const ok = `"tool":"t","input":{}`
	for _, tt := range []struct {
		name, body string
		want       string // part of the error, "" for none
	}{
		{"plain", `{` + ok + `}`, ""},
		{"space", " \r\n\t{ \"tool\" : \"t\" , \"input\" : [ 1 , 2 ] } \n", ""},
		{"all kinds", `{` + ok + `,"env":{"A":"1","a":"2"},"wait_ms":0,"extra":{"x":[null,true,false,-1.5e3,"s"]}}`, ""},
		{"null", `{` + ok + `,"wait_ms":null}`, ""},
		{"escaped key", `{"\u0074ool":"t","input":{}}`, ""},
		{"empty", ``, "empty"},
		{"only space", ` `, "empty"},
		{"not JSON", `tool=bash`, "not JSON at byte"},
		{"trailing data", `{` + ok + `}{}`, "not JSON at byte"},
		{"trailing comma", `{` + ok + `,}`, "not JSON"},
		{"single quotes", `{'tool':'t'}`, "not JSON"},
		{"NaN", `{` + ok + `,"wait_ms":NaN}`, "not JSON"},
		{"list", `[]`, "does not fit"},
		{"string", `"tool"`, "does not fit"},
		{"unknown key", `{` + ok + `,"tools":1}`, `/tools: unknown key`},
		{"other case", `{` + ok + `,"Key":"k"}`, `spelled "key"`},
		{"long s", `{` + ok + `,"me` + "\u017f" + `sage_id":"k"}`, `spelled "message_id"`},
		{"twice", `{` + ok + `,"tool":"u"}`, "/tool: the key is given twice"},
		{"twice by escape", `{` + ok + `,"\u0074ool":"u"}`, "/tool: the key is given twice"},
		{"twice in env", `{` + ok + `,"env":{"A":"1","A":"2"}}`, "/env/A: the key is given twice"},
		{"twice in extra", `{` + ok + `,"extra":{"a":{"command":1,"command":2}}}`, "/extra/a/command: the key is given twice"},
		{"twice in a list", `{` + ok + `,"extra":[{},{"a":1,"a":2}]}`, "/extra/1/a: the key is given twice"},
		{"escaped pointer", `{` + ok + `,"extra":{"a/b~":{"c":1,"c":2}}}`, "/extra/a~1b~0/c: the key is given twice"},
		{"input is the tool's", `{"input": [1,{"a":{"b":"}","b":"\\"}}, -1e3 , null ,true,"]"] , "tool":"t"}`, ""},
		{"input is a number", `{"input":-1.5e3,"tool":"t"}`, ""},
		{"input is a string", `{"input":"{","tool":"t"}`, ""},
		{"input of any depth", `{"tool":"t","input":` + strings.Repeat(`[{"a":`, 1000) + "1" + strings.Repeat("}]", 1000) + `}`, ""},
		{"after the input", `{"tool":"t","input":{"tool":"u"},"tool":"u"}`, "/tool: the key is given twice"},
		{"wrong type", `{"tool":1,"input":{}}`, "/tool: a number does not fit, expected string"},
		{"wrong nested type", `{` + ok + `,"env":{"A":1}}`, "/env/A: a number does not fit, expected string"},
		{"too large a number", `{` + ok + `,"timeout_ms":9223372036854775808}`, "/timeout_ms"},
		{"fraction", `{` + ok + `,"timeout_ms":1.5}`, "/timeout_ms"},
		{"not UTF-8", "{" + ok + `,"key":"` + "\xff" + `"}`, "not UTF-8"},
		{"deepest", `{` + ok + `,"extra":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, ""},
		{"too deep", `{` + ok + `,"extra":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, "nested deeper than 64"},
		{"too deep objects", `{` + ok + `,"extra":` + strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64) + `}`, "nested deeper than 64"},
		{"far too deep", strings.Repeat("[", 100000) + strings.Repeat("]", 100000), "not JSON"},
		{"too many values", `{` + ok + `,"extra":[` + strings.Repeat("0,", maxValues) + `0]}`, "more than 131072 values"},
	} {
		var got client.CallCreate
		err := decodeStrict([]byte(tt.body), callShape, &got)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == "" && (got.Tool != "t" || len(got.Input) == 0):
			t.Errorf("%s: decoded %+v", tt.name, got)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

// TestShapes: the shape of nested types is known too.
func TestShapes(t *testing.T) {
	sh := shapeOf(reflect.TypeFor[client.SessionCreate]())
	for body, want := range map[string]string{
		`{"limits":{"memory":"1GiB","wall":"30s","cpus":1.5},"ttl":1000}`: "",
		`{"limits":{"Memory":1}}`:                                    `spelled "memory"`,
		`{"limits":{"memory":"12 bananas"}}`:                         "not a size",
		`{"limits":{"memory":-1}}`:                                   "not a size",
		`{"limits":{"memory":{}}}`:                                   "not a size",
		`{"ttl":"5"}`:                                                "5 what? write 5s",
		`{"ttl":"soon"}`:                                             "not a duration",
		`{"mounts":[{"source":"/a","target":"/b"}]}`:                 "",
		`{"mounts":[{"source":"/a","target":"/b"},{"path":"/etc"}]}`: "/mounts/1/path: unknown key",
		`{"worktree":{"source":"/a","sourc":"/b"}}`:                  "/worktree/sourc: unknown key",
		`{"labels":{"a":"1","A":"2"}}`:                               "",
		`{"delegates":["a",{}]}`:                                     "does not fit",
	} {
		err := decodeStrict([]byte(body), sh, new(client.SessionCreate))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// FuzzDecodeStrict: whatever the bytes, decoding ends with an error or with
// exactly what a plain strict decoder makes of them; and what is accepted has one
// meaning, so that writing it and reading it again changes nothing.
func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{
		`{"tool":"t","input":{"a":[1,{"b":null}]},"env":{"A":"1"},"wait_ms":0}`, `{"tool":"t","tool":"u"}`, `{"Tool":"t"}`,
		`{"\u0074ool":"\ud800"}`, `[[[[`, `{"input":"\\"}`, `{"extra":{"":{"":{}}},"timeout_ms":1e2}`, " {\t}\r\n", `nul`, `{"a":`, "\xff", `{"tool":"\"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want client.CallCreate
		if err := decodeStrict(text, callShape, &got); err != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %+v, encoding/json has %+v", text, got, want)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeStrict(again, callShape, new(client.CallCreate)); err != nil {
			t.Fatalf("%q was accepted, and not as %q: %v", text, again, err)
		}
	})
}

// FuzzID: what is taken for an id or a name is harmless in a path, a log line
// and a file's name.
func FuzzID(f *testing.F) {
	for _, s := range []string{"ses_01h", "call_0", "../x", "a/b", "%2e%2e", "\x00", "-x", ".x", "ü", "", strings.Repeat("a", 300), "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !callID.MatchString(s) && !anyName.MatchString(s) {
			return
		}
		if s == "" || len(s) > 64+5 || s[0] == '-' || s[0] == '.' {
			t.Fatalf("%q was accepted", s)
		}
		for _, c := range []byte(s) {
			if c <= ' ' || c > '~' || strings.IndexByte(`/\%'"*?$;&|<>`+"`", c) >= 0 {
				t.Fatalf("%q was accepted", s)
			}
		}
	})
}

func BenchmarkDecodeStrict(b *testing.B) {
	text := []byte(`{"tool":"bash","input":{"command":"go test ./... | tail -3","description":"run the tests"},"message_id":"m1","timeout_ms":60000}`)
	for b.Loop() {
		var r client.CallCreate
		if err := decodeStrict(text, callShape, &r); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRefusedFieldsAreNamed: whatever value of whatever body has the wrong type, the refusal points at it.
func TestRefusedFieldsAreNamed(t *testing.T) {
	t.Parallel()
	wrong := []string{`"x y"`, `{"x":[]}`, `[[]]`, `1.5`, `true`, `-1e400`}
	var tried int
	var visit func(at reflect.Type, pointer string, body func(value string) string, of reflect.Type)
	visit = func(at reflect.Type, pointer string, body func(value string) string, of reflect.Type) {
		for at.Kind() == reflect.Pointer {
			at = at.Elem()
		}
		for _, value := range wrong {
			if at == rawMessage || json.Unmarshal([]byte(value), reflect.New(at).Interface()) == nil {
				continue // it takes that, or reads it itself later
			}
			err := decodeStrict([]byte(body(value)), shapeOf(of), reflect.New(of).Interface())
			if tried++; err == nil || !strings.HasPrefix(err.Error(), pointer) {
				t.Errorf("%s in %v: %v, want %q", body(value), of, err, pointer)
			}
		}
		if reflect.PointerTo(at).Implements(unmarshaler) {
			return
		}
		switch at.Kind() {
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(at) {
				if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && f.IsExported() {
					visit(f.Type, pointer+"/"+name, func(v string) string { return body(fmt.Sprintf("{%q:%s}", name, v)) }, of)
				}
			}
		case reflect.Slice:
			visit(at.Elem(), pointer+"/0", func(v string) string { return body("[" + v + "]") }, of)
		case reflect.Map:
			visit(at.Elem(), pointer+"/k", func(v string) string { return body(`{"k":` + v + "}") }, of)
		}
	}
	for i := range routes {
		if of := routes[i].bodyType(); of != nil {
			visit(of, "", func(v string) string { return v }, of)
		}
	}
	if tried < 300 {
		t.Errorf("only %d values were tried", tried)
	}
}

package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/api"
	"github.com/toold/toold/client"
)

var update = flag.Bool("update", false, "write api/openapi.json anew")

const specFile = "../../api/openapi.json"

// TestOpenAPI: the document that is checked in is the one that the table of
// routes and the types of package client give.
func TestOpenAPI(t *testing.T) {
	want := generate(t)
	if *update {
		if err := os.WriteFile(specFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(api.OpenAPI, want) {
		t.Errorf("api/openapi.json is out of date: go test ./internal/server -run OpenAPI -update")
	}
}

// object is a JSON object of the document.
type object = map[string]any

// generator builds the document.
type generator struct {
	docs    sourceDocs
	schemas object
	strict  map[string]bool // schemas of requests: no other properties
}

func generate(t *testing.T) []byte {
	t.Helper()
	g := &generator{docs: parseClient(t), schemas: object{}, strict: map[string]bool{}}
	for i := range routes {
		if b := routes[i].bodyType(); b != nil {
			g.markStrict(b)
		}
	}
	paths := object{}
	for i := range routes {
		rt := &routes[i]
		item, _ := paths[rt.pattern].(object)
		if item == nil {
			item = object{}
			paths[rt.pattern] = item
		}
		item[strings.ToLower(rt.method)] = g.operation(rt)
	}
	g.schema(reflect.TypeFor[client.Problem]())
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "toold", "version": "v1",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "HTTP/1.1 and JSON over a Unix socket. Who asks is known from the socket's peer; " +
				"an admin may act for a tenant with the header Toold-Tenant; a session's bearer token is good for calls in that session. " +
				"Bodies are strict: unknown, repeated and differently spelled keys are refused, and so are unknown query parameters. " +
				"Errors are problem documents (RFC 9457) with a code; once a call has a record, the answer is that call, also when it was denied or failed.",
		},
		"servers": []any{object{"url": "http://toold", "description": "the Unix socket, by default /run/toold/toold.sock"}},
		"paths":   paths,
		"components": object{
			"schemas":         g.schemas,
			"securitySchemes": object{"sessionToken": object{"type": "http", "scheme": "bearer", "description": "token of POST /v1/sessions"}},
			"responses": object{"Problem": object{
				"description": "The request was not carried out; code says why",
				"content":     object{"application/problem+json": object{"schema": ref("Problem")}},
				"headers": object{"Retry-After": object{
					"description": "with 429 and 503: seconds after which it is worth asking again", "schema": object{"type": "integer"},
				}},
			}},
		},
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(doc); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// operation describes one route.
func (g *generator) operation(rt *route) object {
	op := object{
		"operationId": rt.op, "summary": rt.summary, "x-toold-role": []string{"anyone", "token", "tenant", "admin"}[rt.role],
		"description": g.docs.described(rt), "responses": g.responses(rt),
		"x-codeSamples": []any{object{"lang": "Shell", "label": "curl", "source": sample(rt)}},
	}
	// Who asks is known from the socket; only a session's token is shown.
	op["security"] = []any{}
	if rt.role <= roleToken {
		op["security"] = []any{object{}, object{"sessionToken": []any{}}}
	}
	if rt.request != nil {
		kind, schema := "application/octet-stream", object{}
		if rt.request == any(anyJSON{}) {
			kind, schema = "application/json", object{"type": "object"}
		}
		if t := rt.bodyType(); t != nil {
			kind, schema = "application/json", g.schema(t)
		}
		body := object{"schema": schema}
		if text := exampleBodies[rt.op]; text != "" {
			body["example"] = json.RawMessage(text)
		}
		op["requestBody"] = object{"required": true, "content": object{kind: body}}
	}
	if params := g.params(rt); len(params) > 0 {
		op["parameters"] = params
	}
	return op
}

func (g *generator) responses(rt *route) object {
	ok := object{"description": "Done"}
	if content := g.content(rt.response); content != nil {
		ok["content"] = content
	}
	problem := object{"$ref": "#/components/responses/Problem"}
	all := object{strconv.Itoa(rt.status): ok, "4XX": problem, "default": problem}
	switch rt.op {
	case "CreateCall":
		ok["description"] = "The finished call, also a malformed one (see error); or its events: pending, running, metadata, output, approval.asked, approval.replied, completed, error. Their data is a Call; of output an Output, of metadata an object, of approval.asked an Approval, of approval.replied an ApprovalReply. The id of an output event is the offset behind it (of a call with streams=split those of stdout and stderr, with a comma): the same request with its key and Last-Event-ID goes on there"
		ok["content"].(object)["text/event-stream"] = g.events("Call", client.Call{}, client.Output{}, client.Approval{}, client.ApprovalReply{})
		all["202"] = object{"description": "The call as it stands; it goes on", "content": g.content(rt.response)}
	case "Diff":
		ok["description"] = "The patch, as `git apply` takes it; with Accept: application/json the list. Names and contents are the sandbox's: what reads them must expect any bytes. The trailers Toold-Left-Out and Toold-Unreadable count the changes that are not in a patch, Toold-Excluded and Toold-Ignored those that exclude and no_ignored leave out; so does Toold-Stale, of those whose file somebody has changed in the source since the session began, which is not known any more. Toold-Source-Changed counts those that are told against what the session began with while the source has something else, Toold-Incomplete the moved directories that lack files which the source has no more, Toold-Converted the changed files that git stores otherwise than they lie in the source (filter, working-tree-encoding or ident in a .gitattributes), for which `git apply` may refuse the patch. Toold-Source-Astray says what is at the path of the source where that was moved or removed, Toold-Earlier what became of an apply that the daemon ended in the middle of"
		ok["content"].(object)["application/json"] = object{"schema": g.schema(reflect.TypeFor[client.Changes]())}
	case "GetFile":
		ok["description"] = "The file as it is; with archive=tar a tar, whose end marker is missing where it broke off"
		ok["headers"] = object{"Toold-Call": object{
			"description": "with archive=tar: id of the call that packs; its output says what was left out", "schema": object{"type": "string"},
		}}
	case "PutFile":
		ok["description"] = "The call; with archive=tar it has is_error where not everything was written, and its output says what was"
	case "Ready":
		all["503"] = object{"description": "Not ready", "content": g.content(rt.response)}
	case "CreateSession":
		ok["description"] = "The session; or, with Accept: text/event-stream, queued while it waits for a place (its data is a SessionQueued), then completed with the session or error with a Problem"
		ok["content"].(object)["text/event-stream"] = g.events("Session", client.Session{}, client.SessionQueued{}, client.Problem{})
	case "PullImage":
		ok["description"] = "The image; or, with Accept: text/event-stream, progress (its data is an ImageProgress), then completed with the image or error with a Problem"
		ok["content"].(object)["text/event-stream"] = g.events("Image", client.Image{}, client.ImageProgress{}, client.Problem{})
	case "MCP":
		ok["description"] = "What the protocol answers, as JSON or as its events; bodies and answers are those of JSON-RPC"
		ok["content"].(object)["text/event-stream"] = object{"schema": object{}}
		all["202"] = object{"description": "A notification was taken"}
	case "Events":
		ok["description"] = "Events with their ids; the data of each is an Event"
	}
	return all
}

func (g *generator) content(v any) object {
	switch v.(type) {
	case nil:
		return nil
	case bytesBody:
		return object{"application/octet-stream": object{"schema": object{}}}
	case textBody:
		return object{"text/plain": object{"schema": object{"type": "string"}}}
	case eventsBody:
		return object{"text/event-stream": object{"schema": g.schema(reflect.TypeFor[client.Event]())}}
	case anyJSON:
		return object{"application/json": object{"schema": object{"type": "object"}}}
	case client.ToolList: // in the shape of a provider with ?format=
		own := g.schema(reflect.TypeOf(v))
		other := object{"type": "object", "required": []string{"items"}, "properties": object{"items": object{"type": "array", "items": object{"type": "object"}}}}
		return object{"application/json": object{"schema": object{"anyOf": []any{own, other}}}}
	}
	return object{"application/json": object{"schema": g.schema(reflect.TypeOf(v))}}
}

// events is a stream whose events have data of these types; the schema of it is
// named for what the stream is about.
func (g *generator) events(of string, data ...any) object {
	var all []object
	for _, v := range data {
		all = append(all, g.schema(reflect.TypeOf(v)))
	}
	name := of + "EventData"
	g.schemas[name] = object{"description": "The data of one event of a text/event-stream", "anyOf": all}
	return object{"schema": ref(name)}
}

func (g *generator) params(rt *route) []any {
	var list []any
	for _, kind := range rt.pathIDs() {
		doc := "id of the " + kind.what
		if kind.what == "session" || kind.what == "checkpoint" {
			doc = "id or name of the " + kind.what
		}
		list = append(list, object{"name": kind.name(), "in": "path", "required": true, "description": doc, "schema": object{"type": "string", "pattern": kind.form.String()}})
	}
	switch rt.op {
	case "Events":
		list = append(list, object{"name": "Last-Event-ID", "in": "header", "description": "go on after this event", "schema": object{"type": "string"}})
	case "CreateCall":
		list = append(list, object{"name": "Last-Event-ID", "in": "header", "description": "of a stream: go on after this output event of the call that has the key", "schema": object{"type": "string"}})
	}
	for _, p := range rt.query {
		list = append(list, p.describe())
	}
	return list
}

func (p param) describe() object {
	schema := object{"type": "string"}
	switch {
	case p.kind == yesNo:
		schema["enum"] = []string{"1", "true", "0", "false"}
	case p.kind == count:
		schema = object{"type": "integer", "minimum": 0}
	case p.values != nil:
		schema["enum"] = p.values
	}
	o := object{"name": p.name, "in": "query", "description": p.doc, "schema": schema}
	if p.required {
		o["required"] = true
	}
	if p.many {
		o["schema"], o["explode"] = object{"type": "array", "items": schema}, true
	}
	return o
}

// markStrict notes the types that requests consist of.
func (g *generator) markStrict(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		g.markStrict(t.Elem())
	case reflect.Struct:
		g.strict[t.Name()] = true
		for f := range t.Fields() {
			g.markStrict(f.Type)
		}
	}
}

// schema gives the schema of t: a reference for named types of package client.
func (g *generator) schema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	name := schemaName(t)
	if name != "" {
		if _, ok := g.schemas[name]; !ok {
			g.schemas[name] = object{} // against recursion
			g.schemas[name] = g.named(t)
		}
		return ref(name)
	}
	return g.plain(t)
}

func (g *generator) plain(t reflect.Type) object {
	switch t.Kind() {
	case reflect.Pointer:
		return g.schema(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": g.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": g.schema(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Interface:
		return object{}
	}
	panic(fmt.Sprintf("no schema for %s", t))
}

func (g *generator) named(t reflect.Type) object {
	doc := g.docs.types[t.Name()]
	switch {
	case t == reflect.TypeFor[client.Size]():
		// A type of its own for what answers have: generators make numbers of it. That
		// requests may also have text is for people.
		return object{"description": doc, "type": "integer", "format": "int64", "minimum": 0, "example": 268435456}
	case t == reflect.TypeFor[client.Duration]():
		return object{"description": doc, "type": "integer", "format": "int64", "example": 30000}
	case t.Kind() == reflect.Struct:
		return g.structure(t, doc)
	}
	s := g.plain(t)
	s["description"], s["enum"] = doc, g.docs.enums[t.Name()]
	return s
}

func (g *generator) structure(t reflect.Type, doc string) object {
	props, required := object{}, []string{}
	for f := range t.Fields() {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		prop := g.schema(f.Type)
		if d := g.docs.fields[t.Name()+"."+f.Name]; d != "" {
			prop = maps.Clone(prop)
			prop["description"] = d
		}
		props[name] = prop
		if !strings.Contains(opts, "omit") {
			required = append(required, name)
		}
	}
	s := object{"type": "object", "properties": props}
	if doc != "" {
		s["description"] = doc
	}
	if len(required) > 0 {
		s["required"] = required
	}
	if g.strict[t.Name()] {
		s["additionalProperties"] = false
	}
	return s
}

// schemaName is the name of t's schema, "" for types that are written in place.
func schemaName(t reflect.Type) string {
	if t.PkgPath() != reflect.TypeFor[client.Session]().PkgPath() {
		return ""
	}
	if elem, ok := strings.CutPrefix(t.Name(), "List["); ok {
		return strings.TrimSuffix(elem[strings.LastIndex(elem, ".")+1:], "]") + "List"
	}
	return t.Name()
}

// sourceDocs are the comments and constants of package client.
type sourceDocs struct {
	types, fields, methods map[string]string
	enums                  map[string][]string
}

func parseClient(t *testing.T) sourceDocs {
	t.Helper()
	d := sourceDocs{types: map[string]string{}, fields: map[string]string{}, methods: map[string]string{}, enums: map[string][]string{}}
	files, err := os.ReadDir("../../client")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), "../../client/"+f.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					d.add(decl, spec)
				}
			case *ast.FuncDecl:
				if decl.Recv != nil {
					d.methods[decl.Name.Name] = oneLine(decl.Doc)
				}
			}
		}
	}
	return d
}

// described is the summary of an operation, with what the client's method of its name says more.
func (d *sourceDocs) described(rt *route) string {
	_, more, _ := strings.Cut(d.methods[rt.op], ". ")
	return strings.TrimSpace(rt.summary + ". " + more)
}

func (d *sourceDocs) add(gen *ast.GenDecl, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		d.types[spec.Name.Name] = oneLine(gen.Doc)
		if st, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range st.Fields.List {
				doc := strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))
				for _, n := range f.Names {
					d.fields[spec.Name.Name+"."+n.Name] = doc
				}
			}
		}
	case *ast.ValueSpec:
		typ, ok := spec.Type.(*ast.Ident)
		if !ok || len(spec.Values) != 1 {
			return
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if v, err := strconv.Unquote(lit.Value); err == nil && !slices.Contains(d.enums[typ.Name], v) {
				d.enums[typ.Name] = append(d.enums[typ.Name], v)
			}
		}
	}
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

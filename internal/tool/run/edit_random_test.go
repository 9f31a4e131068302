package run

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/testrig/difftest"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// tryEdit makes an edit by both ways that a call can take, as a call that somebody
// approved and as one that nobody was asked about, and checks what holds for every
// edit: it changes the file or is refused, what an approver sees is what is written,
// and both ways agree.
func tryEdit(t *testing.T, env *Env, file, before string, input object) (after string, r *Result) {
	t.Helper()
	input["file_path"] = "f"
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	var results [2]*Result
	var contents [2]string
	for i := range results {
		writeFile(t, file, before)
		own := *env
		var prep *Prepared
		if i == 0 {
			if prep, err = (Edit{}).Prepare(t.Context(), &own, raw); err != nil {
				t.Fatalf("prepare %s of %q: %v", raw, before, err)
			}
			if contentOf(t, file) != before {
				t.Fatalf("%s: Prepare changed the file", raw)
			}
		}
		if results[i], err = (Edit{}).Run(t.Context(), &own, raw, prep); err != nil {
			t.Fatalf("%s of %q: %v", raw, before, err)
		}
		r, contents[i] = results[i], contentOf(t, file)
		if r.IsError != (contents[i] == before) {
			t.Fatalf("%s: %q became %q with %+v", raw, before, contents[i], r)
		}
		if r.IsError {
			continue
		}
		diff, _ := r.Metadata["diff"].(string)
		if prep != nil && diff != prep.Diff {
			t.Fatalf("%s of %q: shown\n%s\nbut done\n%s", raw, before, prep.Diff, diff)
		}
		made, err := difftest.Apply(before, diff)
		if err != nil || made != contents[i] {
			t.Fatalf("%s: %q became %q; the diff makes %q of it, %v:\n%s", raw, before, contents[i], made, err, diff)
		}
	}
	if results[0].Output != results[1].Output || contents[0] != contents[1] {
		t.Fatalf("%s of %q: approved %+v, %q; unasked %+v, %q", raw, before, results[0], contents[0], results[1], contents[1])
	}
	return contents[0], r
}

// editPieces are what random files are made of.
var editPieces = []string{
	"foo", "foo", "f", "o", " ", "\n", "\n", "foo foo\n", "\tfoo\n", "bar\n", "}\n", "\r\n", "é", "日", "\n\n\n\n\n\n\n\n",
}

func randomPieces(rnd *rand.Rand, least, most int) string {
	var b strings.Builder
	for range least + rnd.IntN(most-least+1) {
		b.WriteString(editPieces[rnd.IntN(len(editPieces))])
	}
	return b.String()
}

// Edits with replace_all are strings.ReplaceAll where the old text stands in the file.
// Line endings are the file's own, so texts are compared without their kind.
func TestReplaceAllIsReplaceAll(t *testing.T) {
	env, dir := fileEnv(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	plain := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
	done, wasThere := 0, 0
	for done < testrig.Rounds(2500) {
		before := randomPieces(rnd, 1, 30)
		old, new := randomPieces(rnd, 1, 3), randomPieces(rnd, 0, 3)
		if rnd.IntN(2) == 0 {
			old = "foo"
		}
		if plain(old) == plain(new) || textfile.InvalidUTF8([]byte(before), false) >= 0 {
			continue
		}
		done++
		after, r := tryEdit(t, env, dir+"/f", before, object{"old_string": old, "new_string": new, "replace_all": true})
		if !strings.Contains(plain(before), plain(old)) {
			continue // a tolerant strategy's, or refused
		}
		wasThere++
		want := strings.ReplaceAll(plain(before), plain(old), plain(new))
		switch {
		case want == plain(before):
			if !r.IsError {
				t.Fatalf("%q, %q by %q: nothing to change, and %q", before, old, new, after)
			}
		case r.IsError || plain(after) != want:
			t.Fatalf("%q, %q by %q: %q, want %q; %+v", before, old, new, after, want, r)
		case r.Metadata["strategy"] != "exact" || r.Metadata["places"] != strings.Count(plain(before), plain(old)):
			t.Fatalf("%q, %q by %q: %+v", before, old, new, r.Metadata)
		case !strings.Contains(before+new+old, "\r") && after != want:
			t.Fatalf("%q, %q by %q: %q, want %q", before, old, new, after, want)
		}
	}
	if wasThere < testrig.Rounds(1000) {
		t.Errorf("the old text stood in the file in only %d of %d edits", wasThere, done)
	}
}

// FuzzEdit: whatever file and input are, an edit changes the file as its diff says, or
// is refused and leaves it as it was.
func FuzzEdit(f *testing.F) {
	env, dir := fileEnv(f)
	env.Settings = json.RawMessage(`{"matching":"lenient"}`)
	f.Fuzz(func(t *testing.T, before, old, new string, all bool) {
		raw, err := json.Marshal(object{"file_path": "f", "old_string": old, "new_string": new, "replace_all": all})
		if err != nil {
			t.Skip(err)
		}
		writeFile(t, dir+"/f", before)
		own := *env
		if _, err := (Edit{}).Run(t.Context(), &own, raw, nil); err != nil {
			if got := contentOf(t, dir+"/f"); got != before {
				t.Fatalf("%s of %q: %v, and %q", raw, before, err, got)
			}
			return
		}
		tryEdit(t, env, dir+"/f", before, object{"old_string": old, "new_string": new, "replace_all": all})
	})
}

// A call that nobody was asked about goes by the file as it is when its turn comes;
// one that was approved goes by the file that was shown.
func TestOnlyApprovedEditsAreBound(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tool  Direct
		input object
		want  string // of the one that is not bound
	}{
		{"edit", Edit{}, object{"old_string": "two", "new_string": "2"}, "ONE\n2\n"},
		{"write", Write{}, object{"content": "new\n"}, "new\n"},
	} {
		for _, approved := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, approved), func(t *testing.T) {
				env, dir := fileEnv(t)
				writeFile(t, dir+"/f", "one\ntwo\n")
				tt.input["file_path"] = "f"
				raw, _ := json.Marshal(tt.input)
				prepare := tt.tool.Resolve
				if approved {
					prepare = tt.tool.Prepare
				}
				prep, err := prepare(t.Context(), env, raw)
				if err != nil || (prep.Diff != "") != approved || (prep.State != nil) != approved || prep.Targets[0].Path != "/w/f" {
					t.Fatalf("%+v, %v", prep, err)
				}
				writeFile(t, dir+"/f", "ONE\ntwo\n")
				r, err := tt.tool.Run(t.Context(), env, raw, prep)
				if approved {
					expectCode(t, err, CodeStale)
					if got := contentOf(t, dir+"/f"); got != "ONE\ntwo\n" {
						t.Errorf("content %q", got)
					}
					return
				}
				if err != nil || r.IsError || contentOf(t, dir+"/f") != tt.want {
					t.Fatalf("%+v, %v, %q", r, err, contentOf(t, dir+"/f"))
				}
				if made, err := difftest.Apply("ONE\ntwo\n", r.Metadata["diff"].(string)); err != nil || made != tt.want {
					t.Errorf("diff %v: %v", r.Metadata["diff"], err)
				}
			})
		}
	}
}

// A refused edit of a file that does not exist makes nothing, not even a directory.
func TestRefusedEditMakesNothing(t *testing.T) {
	env, dir := fileEnv(t)
	r, err := (Edit{}).Run(t.Context(), env, json.RawMessage(`{"file_path":"new/f","old_string":"a","new_string":"b"}`), nil)
	if err != nil || !r.IsError || !strings.Contains(r.Output, "/w/new/f does not exist") {
		t.Errorf("%+v, %v", r, err)
	}
	if all, err := filepath.Glob(dir + "/*"); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// A diff that is too large for the metadata is cut, and says how large it is and where
// the rest is.
func TestLargeDiffGivesWay(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", strings.Repeat("the old line\n", 5000))
	r := mustCall(t, env, Edit{}, object{"file_path": "f", "old_string": "old", "new_string": "new", "replace_all": true})
	diff, _ := r.Metadata["diff"].(string)
	head, last, ok := strings.Cut(diff, "\n… diff cut here")
	if !ok || len(diff) > metadataDiff+200 || len(diff) < metadataDiff-200 || !strings.HasSuffix(head, "line") ||
		last != ": in all 5000 lines added, 5000 removed; read f for the file as it is now\n" {
		t.Errorf("%d bytes, end with %q", len(diff), diff[max(0, len(diff)-200):])
	}
	if r.Metadata["lines_added"] != 5000 || r.Metadata["places"] != 5000 || r.Metadata["path"] != "/w/f" {
		t.Errorf("%v", r.Metadata["places"])
	}
}

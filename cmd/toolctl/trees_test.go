package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

// hostilePatch has what a sandbox can put into a patch.
const hostilePatch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ f\x1b[2J()\n-a\r\n+\x1b]0;title\a\xff\u202e\n \ttab\n"

func checkpoint(id, name string) client.Checkpoint {
	return client.Checkpoint{ID: id, Session: fakeSession, Name: name, Created: time.Now().Add(-time.Hour), Cause: "message", Message: "msg_7", Bytes: 4096}
}

// treeHandlers are the routes of a session whose changes are kept beside its source. Its
// checkpoints are cp_abc1, which has the name first, and cp_abd2.
func treeHandlers() map[string]http.HandlerFunc {
	known := func(do http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if id := r.PathValue("id"); id != fakeSession && id != "review" {
				answerProblem(w, 404, client.CodeNotFound, "there is no session "+id)
				return
			}
			do(w, r)
		}
	}
	unknown := func(cp string) bool { return cp != "" && cp != "cp_abc1" && cp != "cp_abd2" && cp != "first" }
	first := client.Change{Path: "a\x1b", Status: client.ChangeModified, Kind: "file", OldKind: "file", Added: 3, Removed: 1}
	second := client.Change{Path: "b\ufffd", Bytes: []byte("b\xff"), Status: client.ChangeAdded, Kind: "file", Binary: true, Size: 12}
	noCheckpoint := func(w http.ResponseWriter, cp string) {
		answerProblem(w, 404, client.CodeNotFound, "there is no checkpoint "+cp)
	}
	return map[string]http.HandlerFunc{
		"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"GET /v1/sessions/{id}/diff": known(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			switch {
			case unknown(q.Get("against")):
				noCheckpoint(w, q.Get("against"))
			case r.Header.Get("Accept") != "application/json":
				w.Header().Set("Trailer", client.HeaderLeftOut+", "+client.HeaderUnreadable+", "+client.HeaderExcluded+", "+client.HeaderIgnored+", "+client.HeaderConverted)
				defer func() {
					if slices.Equal(q["exclude"], []string{"*.log", "b/"}) && q.Get("no_ignored") == "true" {
						w.Header().Set(client.HeaderExcluded, "1")
						w.Header().Set(client.HeaderIgnored, "7")
					}
					if q.Get("path") == "less" {
						w.Header().Set(client.HeaderLeftOut, "2")
						w.Header().Set(client.HeaderUnreadable, "1")
						w.Header().Set(client.HeaderConverted, "1")
					}
				}()
				n := 1
				if q.Get("path") == "long" {
					n = 10_000 // more than a pipe holds
				}
				_, _ = io.WriteString(w, strings.Repeat(hostilePatch, n))
				if q.Get("path") == "cut" {
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
			case slices.Equal(q["exclude"], []string{"*.log", "b/"}) && q.Get("no_ignored") == "true":
				answer(w, 200, client.Changes{Items: []client.Change{first}, Files: 1, Added: 3, Removed: 1, Excluded: 1, Ignored: 7})
			case q.Get("after") == "":
				answer(w, 200, client.Changes{Items: []client.Change{first}, Next: "n", Files: 2, Added: 3, Removed: 1, Unreadable: 1})
			default:
				answer(w, 200, client.Changes{Items: []client.Change{second}, Files: 2, Added: 3, Removed: 1, Unreadable: 1})
			}
		}),
		"POST /v1/sessions/{id}/apply":   known(answerWith(client.Applied{Written: []string{"a\x1b"}, WrittenCount: 1})),
		"POST /v1/sessions/{id}/discard": known(answerWith(client.Discarded{Count: 2})),
		"GET /v1/sessions/{id}/checkpoints": known(answerWith(client.List[client.Checkpoint]{
			Items: []client.Checkpoint{checkpoint("cp_abc1", "first"), checkpoint("cp_abd2", "")},
		})),
		"POST /v1/sessions/{id}/checkpoints": known(answerWith(checkpoint("cp_new", "x"))),
		"DELETE /v1/sessions/{id}/checkpoints/{checkpoint}": known(func(w http.ResponseWriter, r *http.Request) {
			if cp := r.PathValue("checkpoint"); unknown(cp) {
				noCheckpoint(w, cp)
			}
		}),
		"POST /v1/sessions/{id}/restore": known(func(w http.ResponseWriter, r *http.Request) {
			var req client.RestoreRequest
			_ = json.NewDecoder(r.Body).Decode(&req)
			if unknown(req.Checkpoint) {
				noCheckpoint(w, req.Checkpoint)
				return
			}
			answer(w, 200, client.Restored{Checkpoint: checkpoint("cp_abc1", "first"), Before: checkpoint("cp_left", ""), Remade: true})
		}),
		"POST /v1/sessions/{id}/fork": known(func(w http.ResponseWriter, r *http.Request) {
			var req client.ForkRequest
			_ = json.NewDecoder(r.Body).Decode(&req)
			if unknown(req.At) {
				noCheckpoint(w, req.At)
				return
			}
			s := session()
			s.ID, s.Token = "ses_fork", "tok"
			answer(w, 201, s)
		}),
	}
}

// A patch is exact in a file, and on a terminal it is seen whole and does nothing.
func TestDiffPatch(t *testing.T) {
	d := startFake(t, treeHandlers())
	r := d.ctl("diff", "ses_01", "src/", "./b", "--against", "cp_abd")
	if r.code != 0 || r.stdout != hostilePatch || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	d.ctl("diff", "review", "less").want(t, 0, hostilePatch, "toolctl: not in the patch: 2 changes; git takes nothing of .git, no FIFOs, no files of more than 512 MiB, and no permissions but the executable bit\n"+
		"toolctl: 1 file could not be compared: the tools' user may not read them\n"+
		"toolctl: \"git apply\" may refuse the patch: git stores 1 file of it otherwise than it lies in the source (filter, working-tree-encoding or ident in a .gitattributes): leave it out (--exclude), or use \"toolctl apply review\"\n")
	asked := d.asked("GET", fakeSession+"/diff")
	if q := asked[len(asked)-1].query; q != "against=cp_abd2&path=src&path=b" {
		t.Errorf("asked for %s", q)
	}
	d.ctl("diff", "review", "--against", "cp_ab").want(t, 2, "", "write more of it")
	d.ctl("diff", "review", "--against", "none").want(t, 4, "", "no checkpoint none")
	d.ctl("diff", "nobody").want(t, 4, "", `no session is named "nobody"`)
	d.ctl("diff", "review", "cut").want(t, 1, "+++ b/x", "the patch is not whole")
	for _, path := range []string{"/etc", "..", "../x", `"../\x61"`, `"/a\nb"`, ""} {
		d.ctl("diff", "review", path).want(t, 2, "", "toolctl: ")
	}
	d.ctl(append([]string{"diff", "review"}, slices.Repeat([]string{"a/long/path"}, 1000)...)...).want(t, 2, "", "1000 paths are too many")
	d.ctl("diff", "review", "--stat", "--name-status").want(t, 2, "", "stat")
	for _, tt := range []struct{ env, want string }{
		{"", "\x1b[1mdiff --git a/x b/x\x1b[0m\n\x1b[1m--- a/x\x1b[0m\n\x1b[1m+++ b/x\x1b[0m\n\x1b[36m@@ -1,2 +1,2 @@\x1b[0m f\\x1b[2J()\n" +
			"\x1b[31m-a\\r\x1b[0m\n\x1b[32m+\\x1b]0;title\\x07\\xff\\u202e\x1b[0m\n \ttab\n"},
		{"NO_COLOR", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ f\\x1b[2J()\n-a\\r\n+\\x1b]0;title\\x07\\xff\\u202e\n \ttab\n"},
	} {
		var out, errs strings.Builder
		a := &app{stdout: &out, stderr: &errs, outTTY: true, getenv: func(name string) string { return map[string]string{tt.env: "1"}[name] }}
		if code := run(t.Context(), []string{"--socket", d.socket, "diff", "review"}, a); code != 0 || out.String() != tt.want {
			t.Errorf("on a terminal, %s: exit %d %q\nwant %q", tt.env, code, out.String(), tt.want)
		}
	}
}

// TestPatchText: a line longer than is held is one line in one colour, and a character at
// the border is whole; a hunk ends where its counts say so.
func TestPatchText(t *testing.T) {
	long := strings.Repeat("x", maxPatchLine-2) + "ü" + strings.Repeat("y", maxPatchLine) + "\x1b"
	for _, tt := range []struct{ patch, want string }{
		{"+" + long, "+" + long[:len(long)-1] + `\x1b`},
		{"@@ -1 +1 @@\n-" + long + "\n+b\n--- a/c\n", "<36>@@ -1 +1 @@<0>\n<31>-" + long[:maxPatchLine-2] + "<0><31>" + long[maxPatchLine-2:2*maxPatchLine-1] + "<0><31>" + long[2*maxPatchLine-1:len(long)-1] + "\\x1b<0>\n<32>+b<0>\n<1>--- a/c<0>\n"},
		{"@@ -1,2 +0,0 @@\n--- a/c\n-b\n--- a/c\n", "<36>@@ -1,2 +0,0 @@<0>\n<31>--- a/c<0>\n<31>-b<0>\n<1>--- a/c<0>\n"},
		{"@@ -99999999999999999999 +1,-3 @@\nindex 1\n", "<36>@@ -99999999999999999999 +1,-3 @@<0>\n<1>index 1<0>\n"},
		{"@@ -1", "<36>@@ -1<0>"},
		{"\xe2\x82", `\xe2\x82`},
		{"", ""},
	} {
		var out strings.Builder
		if err := showPatch(&out, strings.NewReader(tt.patch), true); err != nil {
			t.Fatal(err)
		}
		plain := strings.NewReplacer("\x1b[0m", "<0>", "\x1b[1m", "<1>", "\x1b[31m", "<31>", "\x1b[32m", "<32>", "\x1b[36m", "<36>").Replace(out.String())
		merge := strings.NewReplacer("<0><31>", "", "<0><32>", "")
		if merge.Replace(plain) != merge.Replace(tt.want) {
			t.Errorf("%.60q: %.200q\nwant %.200q", tt.patch, plain, tt.want)
		}
	}
}

// What a user has left out is counted, whatever he looks at.
func TestDiffOmits(t *testing.T) {
	d := startFake(t, treeHandlers())
	for _, form := range [][]string{nil, {"--stat"}, {"--name-status"}, {"-o", "json"}} {
		args := append([]string{"diff", "review", "--no-ignored", "--exclude", "*.log", "--exclude", "b/"}, form...)
		r := d.ctl(args...)
		if r.code != 0 || r.stderr != "toolctl: left out: 1 change that --exclude matches\ntoolctl: left out: 7 changes that .gitignore files ignore\n" {
			t.Errorf("%v: %d, %s", form, r.code, r.stderr)
		}
		if len(form) == 2 && (!strings.Contains(r.stdout, `"excluded": 1`) || !strings.Contains(r.stdout, `"ignored": 7`)) {
			t.Errorf("%v: %s", form, r.stdout)
		}
	}
	long := strings.Repeat("x", maxPathQuery)
	if r := d.ctl("diff", "review", "--exclude", long); r.code == 0 || !strings.Contains(r.stderr, "1 pattern") {
		t.Errorf("%d, %s", r.code, r.stderr)
	}
}

// The list has all pages in it, in all forms.
func TestDiffList(t *testing.T) {
	d := startFake(t, treeHandlers())
	d.ctl("diff", "review", "--name-status").want(t, 0, "M\t\"a\\033\"\nA\t\"b\\377\"\n", "1 file could not be compared")
	d.ctl("diff", "review", "--stat").want(t, 0,
		" \"a\\033\" |   4 +++-\n \"b\\377\" | Bin 0 -> 12 bytes\n 2 files changed, 3 insertions(+), 1 deletion(-)\n", "")
	var all client.Changes
	decode(t, []byte(d.ctl("diff", "review", "-o", "json").stdout), &all)
	if len(all.Items) != 2 || all.Next != "" || string(all.Items[1].Bytes) != "b\xff" || all.Added != 3 {
		t.Errorf("%+v", all)
	}
	d.ctl("diff", "review", "-o", "name").want(t, 0, "\"a\\033\"\n\"b\\377\"\n", "")
}

// What is no file with lines has a word in the diffstat, and a directory only where
// nothing below it says as much.
func TestStatRows(t *testing.T) {
	var out strings.Builder
	writeStat(&out, &client.Changes{Items: []client.Change{
		{Path: "d", Kind: "dir", Status: client.ChangeAdded},
		{Path: "d-e", Kind: "dir", Status: client.ChangeAdded},
		{Path: "d/x", Kind: "file", Status: client.ChangeAdded, Added: 1},
		{Path: "gone", OldKind: "dir", Status: client.ChangeDeleted},
		{Path: "m", Kind: "dir", OldKind: "dir", Status: client.ChangeModified},
		{Path: "m/y", Kind: "file", OldKind: "file", Status: client.ChangeModified, Unreadable: "no\x1b"},
		{Path: "s", Kind: "other", Status: client.ChangeAdded},
		{Path: "t", Kind: "link", OldKind: "dir", Status: client.ChangeType},
	}, Added: 1}, 80, false)
	want := ` d-e  |  dir added
 d/x  |    1 +
 gone |  dir deleted
 m    |  dir modified
 m/y  |  ??? not compared: no\x1b
 s    |  new no file, directory or link: it cannot be applied
 t    | link it was: dir
 7 files changed, 1 insertion(+)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A pager gets what is safe to show; one that is quit early is no failure.
func TestPager(t *testing.T) {
	d := startFake(t, treeHandlers())
	for pager, want := range map[string]struct {
		code int
		out  string
	}{
		`sed "s/^/P$LESS:/;q"`: {0, "PFRX:diff --git"},
		"head -n1":             {0, "diff --git a/x b/x\n"},
		"true":                 {0, ""},
		"exit 3":               {1, ""},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		a := &app{stdout: w, stderr: &errs, outTTY: true, getenv: func(name string) string { return map[string]string{"PAGER": pager, "NO_COLOR": "1"}[name] }}
		code := run(t.Context(), []string{"--socket", d.socket, "diff", "review", "long"}, a)
		_ = w.Close()
		out, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if pager == "exit 3" && code == 0 {
			code = want.code // it may end before or after it was written to
		}
		if code != want.code || !strings.HasPrefix(string(out), want.out) || strings.Contains(string(out), "\x1b") {
			t.Errorf("PAGER=%q: exit %d, %q %s", pager, code, out, &errs)
		}
	}
}

func TestApply(t *testing.T) {
	h := treeHandlers()
	d := startFake(t, h)
	d.ctl("apply", "ses_01", "src", "--exclude", "*.o", "--dry-run", "--merge", "--include-sensitive").want(t, 0, "written  a\\x1b\n1 path written to the source\n", "")
	var req client.ApplyRequest
	asked := d.asked("POST", fakeSession+"/apply")
	decode(t, asked[len(asked)-1].body, &req)
	if fmt.Sprintf("%+v", req) != "{Paths:[src] Exclude:[*.o] DryRun:true Force:false Merge:true IncludeSensitive:true}" {
		t.Errorf("asked for %+v", req)
	}
	d.ctl("apply", "review", "--force", "--merge").want(t, 2, "", "force")
	d.ctl("apply", "review", "../x").want(t, 2, "", "relative to the worktree")

	var sensitive []string
	for i := range 30 {
		sensitive = append(sensitive, fmt.Sprintf(".git/hooks/h%d\x1b", i))
	}
	h["POST /v1/sessions/{id}/apply"] = answerWith(client.Applied{
		Written: []string{"Makefile"}, Removed: []string{"old"}, Merged: []string{"m"}, Sensitive: sensitive, Build: []string{"Makefile"}, Skipped: []string{"sock"},
		WrittenCount: 2, RemovedCount: 1, SensitiveCount: 1030, SkippedCount: 1, DryRun: true,
		Overwritten: []string{"old\x1b"}, OverwrittenCount: 3, Kept: []string{"dir/mine"}, KeptCount: 1, SkippedKinds: map[string]string{"sock": "source_special"},
	})
	r := startFake(t, h).ctl("apply", "review", "-o", "json")
	r.want(t, 0, `"sensitive_count": 1030`, "  .git/hooks/h19\\x1b\ntoolctl:   and 1010 more\ntoolctl:   toolctl diff review PATH...\ntoolctl:   toolctl apply review --include-sensitive PATH...\n")
	r.want(t, 0, "", "look at these before you build; their commands run then\ntoolctl:   Makefile\n")
	r.want(t, 0, "", "these cannot be copied to the source\ntoolctl:   sock (a FIFO, socket or device of the source, or with one in it)\n")
	r.want(t, 0, "", "would be overwritten: somebody has changed these in the source since the session began\ntoolctl:   old\\x1b\ntoolctl:   and 2 more\n")
	r.want(t, 0, "", "remove them yourself if they are to go\ntoolctl:   dir/mine\n")
	startFake(t, h).ctl("apply", "review").want(t, 0, "written  Makefile\nmerged   m\nremoved  old\n2 paths would be written to the source, 1 removed there\n", "")

	h["POST /v1/sessions/{id}/apply"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(409)
		_ = json.NewEncoder(w).Encode(client.Problem{
			Status: 409, Code: client.CodeConflict, Detail: "1 file has changed in the source", Hint: "--merge or --force",
			Violations: []client.Violation{{Path: "a\x1b", Message: "other size"}},
		})
	}
	startFake(t, h).ctl("apply", "review").want(t, 1, "", "toolctl: 1 file has changed in the source\ntoolctl:   a\\x1b: other size\ntoolctl:   --merge or --force\n")
}

// TestApplyConflictsNamed: each path in the way is named once, also where another one has the same reason or a
// longer name, up to so many; programs read all of them.
func TestApplyConflictsNamed(t *testing.T) {
	t.Parallel()
	const why = "it was changed since the session began"
	all := []client.Violation{{Path: "af1", Message: why}, {Path: "f1", Message: why}, {Path: "f2", Message: why}, {Path: "f5", Message: "it is a FIFO"}}
	h := treeHandlers()
	h["POST /v1/sessions/{id}/apply"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(409)
		_ = json.NewEncoder(w).Encode(client.Problem{
			Status: 409, Code: client.CodeConflict, Hint: "look", Violations: all,
			Detail: fmt.Sprintf("nothing was applied: af1: %s, and %d more", why, len(all)-1),
		})
	}
	d := startFake(t, h)
	for _, flags := range [][]string{nil, {"--merge"}, {"--dry-run"}, {"--force", "--dry-run"}, {"-o", "json"}, {"-o", "yaml"}} {
		r := d.ctl(append([]string{"apply", "review"}, flags...)...)
		r.want(t, 1, "", "toolctl: nothing was applied: af1: "+why+", and 3 more\ntoolctl:   f1: "+why+"\ntoolctl:   f2: "+why+"\ntoolctl:   f5: it is a FIFO\ntoolctl:   look\n")
		if data := len(flags) == 2 && flags[0] == "-o"; data != (r.stdout != "") || data && strings.Count(r.stdout, why) != 4 {
			t.Errorf("%v: %s", flags, r.stdout)
		}
	}
	for i := range 30 {
		all = append(all, client.Violation{Path: fmt.Sprintf("x%d", i), Message: why})
	}
	d.ctl("apply", "review").want(t, 1, "", "toolctl:   x16: "+why+"\ntoolctl:   and 13 more, which -o json lists\n")
}

// TestApplyCutOff: where the daemon goes away, what to do is to apply again.
func TestApplyCutOff(t *testing.T) {
	t.Parallel()
	h := treeHandlers()
	h["POST /v1/sessions/{id}/apply"] = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	startFake(t, h).ctl("apply", "review").want(t, 6, "", "see \"systemctl status toold\"; apply again when toold runs")
}

// TestDiffNamesSourceChanged: what somebody has changed in the source too is named by each list.
func TestDiffNamesSourceChanged(t *testing.T) {
	t.Parallel()
	h := treeHandlers()
	h["GET /v1/sessions/{id}/diff"] = answerWith(client.Changes{Files: 3, SourceChanged: 2, Items: []client.Change{
		{Path: "a", Kind: "file", OldKind: "file", Status: client.ChangeModified, Added: 1, SourceChanged: true},
		{Path: "b", Kind: "file", Status: client.ChangeAdded, Added: 1},
		{Path: "c\x1b", Kind: "file", OldKind: "file", Status: client.ChangeModified, Added: 1, SourceChanged: true},
	}})
	d := startFake(t, h)
	for _, form := range [][]string{{"--stat"}, {"--name-status"}, {"-o", "json"}, {"-o", "name"}} {
		r := d.ctl(append([]string{"diff", "review"}, form...)...)
		r.want(t, 0, "", "the source has changed in 2 files since the session began")
		if !strings.HasSuffix(strings.ReplaceAll(r.stderr, "\ntoolctl:   ", "|"), `|a|"c\033"`+"\n") {
			t.Errorf("%v: %s", form, r.stderr)
		}
	}
}

// Without a path all changes go, so somebody must have said so.
func TestDiscard(t *testing.T) {
	d := startFake(t, treeHandlers())
	d.ctl("discard", "review").want(t, 2, "", "name the paths to drop, or add --yes")
	d.ctl("discard", "review", ".").want(t, 2, "", "--yes")
	if n := len(d.asked("POST", "/discard")); n != 0 {
		t.Fatalf("%d were sent", n)
	}
	d.ctl("discard", "review", "src").want(t, 0, "2 changes dropped\n", "")
	d.ctl("discard", "ses_01", "--yes").want(t, 0, "2 changes dropped\n", "")
	for key, code := range map[string]int{"y": 0, "n": 1} {
		before := len(d.asked("POST", "/discard"))
		r := &watchRun{out: &screenText{}, term: newFakeTerminal(), code: make(chan int, 1)}
		a := &app{
			stdin: strings.NewReader(""), stdout: io.Discard, stderr: r.out, errTTY: true, getenv: func(string) string { return "" },
			openTerminal: func() (terminal, error) { return r.term, nil },
		}
		go func() { r.code <- run(t.Context(), []string{"--socket", d.socket, "discard", "review"}, a) }()
		r.out.await(t, "drop all 2 changes of review for good? y yes, n no")
		r.press(t, "x")
		r.press(t, key)
		r.exits(t, code)
		if n := len(d.asked("POST", "/discard")) - before; (n == 1) != (key == "y") {
			t.Errorf("after %s: %d were sent", key, n)
		}
	}
}

func TestCheckpoints(t *testing.T) {
	d := startFake(t, treeHandlers())
	d.ctl("checkpoint", "ses_01", "x").want(t, 0, "cp_new\n", "")
	var req client.CheckpointCreate
	asked := d.asked("POST", fakeSession+"/checkpoints")
	decode(t, asked[len(asked)-1].body, &req)
	if req.Name != "x" {
		t.Errorf("asked for %+v", req)
	}
	d.ctl("checkpoint", "review", "-o", "name").want(t, 0, "cp_new\n", "")
	d.ctl("checkpoint", "ls", "review").want(t, 0, "cp_abd2  -      message msg_7  1h   4.0KiB\n", "")
	d.ctl("checkpoint", "ls", "review", "-o", "name").want(t, 0, "cp_abc1\ncp_abd2\n", "")
	d.ctl("checkpoint", "rm", "ses_01", "cp_abc", "first").want(t, 0, "cp_abc1 is removed\nfirst is removed\n", "")
	d.ctl("checkpoint", "rm", "review", "none", "first").want(t, 4, "first is removed\n", "remove none: there is no checkpoint none")
	d.ctl("checkpoint", "rm", "nobody", "first").want(t, 4, "", `no session is named "nobody"`)
	d.ctl("checkpoint", "rm", "review", "../..").want(t, 2, "", "is not the id or the name of a checkpoint")
	d.ctl("checkpoint").want(t, 2, "", `no SESSION: "toolctl session list" lists them`)
	d.ctl("checkpoint", "review", "a", "b").want(t, 2, "", `"b" is one argument too many`)
	d.ctl("checkpoint", "review", "--nmae").want(t, 2, "", "no flag --nmae")
}

func TestRestore(t *testing.T) {
	d := startFake(t, treeHandlers())
	const said = "review is as it was at cp_abc1 (first), made 1h ago\n" +
		"its sandbox was made anew: nothing runs in it, and its home and /tmp are empty\nto go back again: toolctl restore review cp_left\n"
	d.ctl("restore", "review", "cp_abc").want(t, 0, said, "")
	d.ctl("restore", "review", "first").want(t, 0, said, "")
	d.ctl("restore", "review", "second").want(t, 4, "", "no checkpoint second")
	d.ctl("undo", "review").want(t, 0, said, "")
	d.ctl("undo", "ses_01", "3").want(t, 0, "to go back again: toolctl restore ses_01 cp_left", "")
	for _, n := range []string{"0", "-1", "x", "1e3"} {
		d.ctl("undo", "review", "--", n).want(t, 2, "", "write a number from 1 on")
	}
	var sent []string
	for _, r := range d.asked("POST", "/restore") {
		sent = append(sent, string(r.body))
	}
	for _, want := range []string{`{"checkpoint":"cp_abc1"}`, `{"checkpoint":"first"}`, `{"undo":1}`, `{"undo":3}`} {
		if !strings.Contains(strings.Join(sent, " "), want) {
			t.Errorf("sent %s, and not %s", sent, want)
		}
	}
}

func TestFork(t *testing.T) {
	d := startFake(t, treeHandlers())
	d.ctl("fork", "ses_01", "--at", "cp_abd", "--name", "two", "--label", "k=v", "--ttl", "1h", "--env", "E=1",
		"--permission", "bash:*:deny", "--with-token").want(t, 0, "ses_fork\ntok\n", "")
	asked := d.asked("POST", fakeSession+"/fork")
	want := `{"at":"cp_abd2","name":"two","permission":[{"permission":"bash","pattern":"*","action":"deny"}],"labels":{"k":"v"},"ttl":3600000,"env":{"E":"1"},"token":true}`
	if got := string(asked[len(asked)-1].body); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	d.ctl("fork", "review", "-o", "name").want(t, 0, "ses_fork\n", "")
	d.ctl("fork", "review", "--permission", "x").want(t, 2, "", "PERMISSION:PATTERN:ACTION")
}

// The first argument is a session, those behind it are its checkpoints.
func TestTreeCompletion(t *testing.T) {
	d := startFake(t, treeHandlers())
	for _, args := range []string{"restore review ", "checkpoint rm review ", "checkpoint rm review first ", "diff review --against ", "fork review --at "} {
		words := append([]string{"__complete"}, strings.Split(args, " ")...)
		d.ctl(words...).want(t, 0, "first\tmessage msg_7, 1h ago\ncp_abc1\tmessage msg_7, 1h ago\ncp_abd2\t", "")
	}
	for _, args := range []string{"restore ", "checkpoint ", "undo ", "discard "} {
		d.ctl(append([]string{"__complete"}, strings.Split(args, " ")...)...).want(t, 0, "review\t", "")
	}
}

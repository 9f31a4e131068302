package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/internal/audit/record"
)

// auditDir makes a log of two files with a record of each kind, and gives their
// directory and the hash of the last record.
func auditDir(t *testing.T) (dir, hash string) {
	t.Helper()
	dir = t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	exit := int64(3)
	bodies := []record.Body{
		{Kind: record.KindDecision, Tenant: "ci", Peer: &record.Peer{UID: 7, PID: 8}, Session: "ses_1", Call: "call_1", Tool: "bash", Verdict: "deny", Rule: "config.toml:12", Reason: "=cmd|' /C calc'!A0\nnext", Approver: "uid 0"},
		{Kind: record.KindTorn, Torn: &record.Torn{Bytes: 9}},
		{Kind: record.KindGap, Gap: &record.Gap{Since: at, Refused: 1, Lost: 2, Error: "no space"}},
		{Kind: record.KindFinished, Tenant: "other", Session: "ses_2", Call: "call_2", Tool: "read", Status: "completed", AgentReported: &record.AgentReported{IsError: true, Exit: &exit, Bill: record.Bill{CPUMillis: 5}}},
		{Kind: record.KindFinished, Tenant: "other", Session: "ses_2", Call: "call_3", Tool: "\x1b[2Jread", Status: "error", Code: "denied"},
	}
	path := filepath.Join(dir, record.DefaultName)
	hash = record.Genesis
	var text []byte
	for i, b := range bodies {
		b.Time = at.Add(time.Duration(i) * time.Hour)
		members, err := record.Encode(&b)
		if err != nil {
			t.Fatal(err)
		}
		text, hash = record.AppendLine(text, uint64(i+1), hash, members)
		if i == 1 {
			putFile(t, record.OldName(path, 1), text)
			text = nil
		}
	}
	putFile(t, path, text)
	return dir, hash
}

func putFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func offline(t *testing.T, args ...string) result {
	t.Helper()
	return ctl(t, t.Context(), "", args...)
}

func TestAuditVerify(t *testing.T) {
	dir, hash := auditDir(t)
	offline(t, "audit", "verify", dir).want(t, exitOK, "ok: 5 records in 2 files, 1 to 5\nlast hash: "+hash+"\n1 torn line: the daemon or the machine died while writing, and the log says so itself\n1 gap: the log could not be written for a time, and says so itself\n", "")
	offline(t, "audit", "verify", dir, "--expect", hash, "-o", "name").want(t, exitOK, hash+"\n", "")
	var sum record.Summary
	r := offline(t, "audit", "verify", dir, "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || sum.Records != 5 || sum.Hash != hash || sum.Break != nil {
		t.Errorf("%v: %s", err, r.stdout)
	}
	offline(t, "audit", "verify", dir, "--expect", "abc").want(t, exitUsage, "", "is not a hash")
	if r := offline(t, "audit", "verify", dir, "--expect", record.Genesis); r.code != exitFailed || !strings.Contains(r.stderr, "cut off or written anew") {
		t.Errorf("%+v", r)
	}

	// By the configuration, as without an argument.
	conf := filepath.Join(t.TempDir(), "config.toml")
	putFile(t, conf, []byte(fmt.Sprintf("[audit]\npath = %q\n", filepath.Join(dir, record.DefaultName))))
	if r := offline(t, "audit", "verify", "--config", conf); r.code != exitOK || !strings.HasPrefix(r.stdout, "ok: 5 records in 2 files") {
		t.Errorf("%+v", r)
	}

	// By the running daemon, wherever its state is.
	live := startFake(t, map[string]http.HandlerFunc{"GET /v1/config": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "[audit]\npath = %q\n", filepath.Join(dir, record.DefaultName))
	}})
	if r := live.ctl("audit", "verify"); r.code != exitOK || !strings.HasPrefix(r.stdout, "ok: 5 records in 2 files") || !strings.Contains(r.stderr, "the log is "+dir) {
		t.Errorf("%+v", r)
	}
	elsewhere := startFake(t, map[string]http.HandlerFunc{"GET /v1/config": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "[daemon]\nstate_dir = \"/nonexistent\"\n")
	}})
	if r := elsewhere.ctl("audit", "verify"); r.code != exitFailed || !strings.Contains(r.stderr, "/nonexistent/audit/audit.jsonl") {
		t.Errorf("%+v", r)
	}

	current := filepath.Join(dir, record.DefaultName)
	if r := offline(t, "audit", "verify", current); r.code != exitOK || !strings.HasPrefix(r.stdout, "ok: 3 records in 1 file, 3 to 5") {
		t.Errorf("one file: %+v", r)
	}
	text, err := os.ReadFile(current)
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, current, []byte(strings.Replace(string(text), "call_2", "call_9", 1)))
	r = offline(t, "audit", "verify", dir)
	if r.code != exitFailed || !strings.Contains(r.stderr, current+":2: changed: ") || !strings.Contains(r.stdout, "broken; good up to there: 3 records in 2 files, 1 to 3") {
		t.Errorf("changed: %+v", r)
	}
	putFile(t, current, text[:len(text)-1])
	if r := offline(t, "audit", "verify", dir); r.code != exitFailed || !strings.Contains(r.stderr, ":3: truncated: ") {
		t.Errorf("cut off: %+v", r)
	}
	putFile(t, current, text)
	if err := os.Remove(record.OldName(current, 1)); err != nil {
		t.Fatal(err)
	}
	if r := offline(t, "audit", "verify", dir); r.code != exitFailed || !strings.Contains(r.stderr, "missing: the log begins with record 3: records 1 to 2 are not here") {
		t.Errorf("older file removed: %+v", r)
	}
	if r := offline(t, "audit", "verify", dir, "--partial"); r.code != exitOK {
		t.Errorf("older file removed, as told: %+v", r)
	}
	putFile(t, current, nil)
	offline(t, "audit", "verify", dir).want(t, exitOK, "ok: no records in 1 file\n", "")
}

func TestAuditWithoutLog(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "config.toml")
	putFile(t, conf, []byte(fmt.Sprintf("[daemon]\nstate_dir = %q\n", t.TempDir())))
	for _, command := range []string{"verify", "export", "tail"} {
		if r := offline(t, "audit", command, "--config", conf); r.code != exitFailed || !strings.Contains(r.stderr, "no such file") || !strings.Contains(r.stderr, "--config") {
			t.Errorf("%s: %+v", command, r)
		}
		if r := offline(t, "audit", command, t.TempDir()); r.code != exitFailed || !strings.Contains(r.stderr, "audit.jsonl") {
			t.Errorf("%s: %+v", command, r)
		}
	}
	putFile(t, conf, []byte("[audit]\nmode = 'x'\n"))
	if r := offline(t, "audit", "verify", "--config", conf); r.code != exitFailed || !strings.Contains(r.stderr, "audit.mode") {
		t.Errorf("%+v", r)
	}
}

func TestAuditExport(t *testing.T) {
	dir, _ := auditDir(t)
	old, err := os.ReadFile(record.OldName(filepath.Join(dir, record.DefaultName), 1))
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(filepath.Join(dir, record.DefaultName))
	if err != nil {
		t.Fatal(err)
	}
	all := string(old) + string(now)
	offline(t, "audit", "export", dir).want(t, exitOK, all, "")
	lines := strings.SplitAfter(all, "\n")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"session", []string{"--session", "ses_1"}, lines[0]},
		{"tenant", []string{"--tenant", "other"}, lines[3] + lines[4]},
		{"since a time", []string{"--since", "2026-01-02T06:04:05Z"}, lines[3] + lines[4]},
		{"since a duration", []string{"--since", "1ms"}, ""},
		{"all of it", []string{"--since", "2026-01-02T07:04:05Z", "--session", "ses_2", "--tenant", "other"}, lines[4]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			offline(t, append([]string{"audit", "export", dir}, tt.args...)...).want(t, exitOK, tt.want, "")
		})
	}
	r := offline(t, "audit", "export", dir, "-o", "csv")
	rows, err := csv.NewReader(strings.NewReader(r.stdout)).ReadAll()
	if err != nil || r.code != exitOK || len(rows) != 6 {
		t.Fatalf("%v, %d rows: %+v", err, len(rows), r)
	}
	col := func(row int, name string) string {
		for i, n := range rows[0] {
			if n == name {
				return rows[row][i]
			}
		}
		t.Fatalf("no column %q", name)
		return ""
	}
	if got := col(1, "reason"); !strings.HasPrefix(got, "'=cmd") || strings.Contains(got, "\n") {
		t.Errorf("a formula: %q", got)
	}
	if col(1, "uid") != "7" || col(1, "pid") != "8" || col(1, "rule") != "config.toml:12" || col(4, "agent_cpu_ms") != "5" || col(4, "uid") != "" || strings.Contains(col(5, "tool"), "\x1b") {
		t.Errorf("rows: %q", rows)
	}
	if r := offline(t, "audit", "export", dir, "-o", "yaml"); r.code != exitUsage || !strings.Contains(r.stderr, "json, csv") {
		t.Errorf("%+v", r)
	}
	if r := offline(t, "audit", "export", dir, "--since", "yesterday"); r.code != exitUsage || !strings.Contains(r.stderr, `"yesterday"`) {
		t.Errorf("%+v", r)
	}
	putFile(t, filepath.Join(dir, record.DefaultName), append([]byte("x\n"), now...))
	if r := offline(t, "audit", "export", dir); r.code != exitFailed || r.stdout != string(old) || !strings.Contains(r.stderr, "audit.jsonl:1: ") {
		t.Errorf("a damaged line: %+v", r)
	}
}

func TestAuditTail(t *testing.T) {
	dir, _ := auditDir(t)
	r := offline(t, "audit", "tail", dir)
	if r.code != exitOK || strings.Count(r.stdout, "\n") != 5 || strings.Contains(r.stdout, "\x1b") {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{"deny", "rule=config.toml:12", "by=uid 0", "uid=7", "9 bytes of a record", "1 refused, 2 lost: no space", "failed", "denied"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	offline(t, "audit", "tail", dir, "-n", "4", "-o", "name").want(t, exitOK, "2\n3\n4\n5\n", "")
	offline(t, "audit", "tail", dir, "-n", "0").want(t, exitOK, "", "")
	if r := offline(t, "audit", "tail", dir, "-n", "1", "-o", "yaml"); !strings.HasPrefix(r.stdout, "---\nseq: 5\n") {
		t.Errorf("%+v", r)
	}
	offline(t, "audit", "tail", dir, "-n", "-1").want(t, exitUsage, "", "0 to")
	putFile(t, filepath.Join(dir, record.DefaultName), []byte("x\n"))
	if r := offline(t, "audit", "tail", dir, "-n", "1"); r.code != exitFailed || !strings.Contains(r.stderr, "audit.jsonl:1: ") {
		t.Errorf("a damaged line: %+v", r)
	}
}

// TestAuditTailTable: at a terminal the records are a table that fits, also where one comes by itself.
func TestAuditTailTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := &app{stdout: &out, stderr: new(strings.Builder), getenv: func(string) string { return "" }, outTTY: true, columns: func() int { return 80 }, format: formatTable}
	s := &auditTailCommand{app: a}
	var last []record.Line
	for i, b := range []record.Body{
		{Kind: record.KindDecision, Tenant: "ci", Peer: &record.Peer{UID: 7}, Session: "ses_33mccgc2teec47mma4qt46msd20o", Call: "call_33mccgdue54arp8dv0pejt2cpmi2", Tool: "apply_patch", Verdict: "deny", Rule: "config.toml:12", Reason: "a long reason of many words"},
		{Kind: record.KindGap, Gap: &record.Gap{Refused: 1, Lost: 2, Error: "no space"}},
		{Kind: record.KindFinished, Tenant: "ci", Session: "ses_33mccgc2teec47mma4qt46msd20o", Call: "call_33mccgqrscp8g3ssi3eupr9cav8h", Tool: "bash", Status: "completed"},
	} {
		b.Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
		members, err := record.Encode(&b)
		if err != nil {
			t.Fatal(err)
		}
		text, hash := record.AppendLine(nil, uint64(i+1), record.Genesis, members)
		_ = hash
		last = append(last, record.Line{Text: bytes.TrimSpace(text), Whole: true})
	}
	if err := s.table(true, last...); err != nil {
		t.Fatal(err)
	}
	if err := s.table(false, last[2]); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, l := range lines {
		if width(l) > 80 {
			t.Errorf("%d columns: %q", width(l), l)
		}
	}
	if !strings.HasPrefix(lines[0], "TIME             RESULT     WHAT         CALL") || !strings.HasPrefix(lines[1], "Jan  2 03:04:05  deny ") || !strings.HasPrefix(lines[len(lines)-1], "Jan  2 03:04:05  completed  bash  call_33mccg") {
		t.Errorf("got\n%s", out.String())
	}
}

// TestAuditFollow: records that come are given, also those around the change to
// another file.
func TestAuditFollow(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, record.DefaultName)
	hash, seq := record.Genesis, uint64(0)
	put := func(file string, cut int) {
		t.Helper()
		members, err := record.Encode(&record.Body{Kind: record.KindDecision})
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		seq++
		text, hash = record.AppendLine(nil, seq, hash, members)
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, part := range [][]byte{text[:cut], text[cut:]} {
			if _, err := f.Write(part); err != nil {
				t.Fatal(err)
			}
			if cut > 0 {
				time.Sleep(2 * followEvery)
			}
		}
	}
	put(path, 0)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fl := &logFollower{name: path, f: f, r: record.NewReader(path, f)}
	defer func() { fl.f.Close() }()
	var mu sync.Mutex
	var got []uint64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = fl.follow(ctx, func(l record.Line) error {
			r, err := record.Decode(l.Text)
			if err != nil {
				t.Error(err)
				return err
			}
			mu.Lock()
			got = append(got, r.Seq)
			mu.Unlock()
			return nil
		})
	})
	put(path, 20)
	old := record.OldName(path, 1)
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * followEvery)
	put(path, 0)
	if err := os.Rename(path, record.OldName(path, 3)); err != nil {
		t.Fatal(err)
	}
	put(path, 0)
	deadline := time.Now().Add(20 * time.Second)
	for {
		mu.Lock()
		n := len(got)
		mu.Unlock()
		if n == 4 || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	if fmt.Sprint(got) != "[1 2 3 4]" {
		t.Errorf("got %v", got)
	}
}

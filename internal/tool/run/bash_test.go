package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/tool/run/root"
)

func TestTrailer(t *testing.T) {
	for _, tc := range []struct {
		exit Exit
		info TrailerInfo
		want string
	}{
		{Exit{Reason: ReasonExit}, TrailerInfo{}, ""},
		{Exit{Reason: ReasonExit, Code: 1}, TrailerInfo{}, "exit code 1"},
		{Exit{Reason: ReasonSignal, Code: -1, Signal: "SIGSEGV"}, TrailerInfo{}, "killed by SIGSEGV"},
		{Exit{Reason: ReasonTimeout}, TrailerInfo{Timeout: 120 * time.Second}, "timed out after 120s (partial output above)"},
		{Exit{Reason: ReasonTimeout}, TrailerInfo{Timeout: 1500 * time.Millisecond}, "timed out after 1.5s (partial output above)"},
		{Exit{Reason: ReasonTimeout}, TrailerInfo{Timeout: 250 * time.Millisecond}, "timed out after 250ms (partial output above)"},
		{Exit{Reason: ReasonTimeout}, TrailerInfo{Timeout: time.Minute, MostTimeout: 10 * time.Minute}, "timed out after 60s (partial output above); set timeout up to 600000 for more time"},
		{Exit{Reason: ReasonTimeout}, TrailerInfo{Timeout: time.Minute, MostTimeout: time.Minute}, "timed out after 60s (partial output above); a call may take no longer: do it in smaller steps"},
		{
			Exit{Reason: ReasonExit, BackgroundKilled: 2, BackgroundNames: []string{"python3", "a\nb"}},
			TrailerInfo{},
			`(2 processes (python3, "a\nb") in the background were killed, since a call ends with its command: start a server and use it in one command)`,
		},
		{
			Exit{Reason: ReasonExit, Code: 3, BackgroundKilled: 1},
			TrailerInfo{},
			"exit code 3\n(1 process in the background was killed, since a call ends with its command: start a server and use it in one command)",
		},
		{Exit{Reason: ReasonTimeout, BackgroundKilled: 7}, TrailerInfo{Timeout: time.Second}, "timed out after 1s (partial output above)"},
		{Exit{Reason: ReasonMemory}, TrailerInfo{MemoryLimit: 2 << 30}, "out of memory (limit 2GiB); do less at once, or have the session made with --limit memory=SIZE"},
		{Exit{Reason: ReasonMemory}, TrailerInfo{MemoryLimit: 1536 << 20}, "out of memory (limit 1536MiB); do less at once, or have the session made with --limit memory=SIZE"},
		{Exit{Reason: ReasonMemory}, TrailerInfo{}, "out of memory; do less at once, or have the session made with --limit memory=SIZE"},
		{Exit{Reason: ReasonAborted}, TrailerInfo{}, "aborted"},
		{Exit{Reason: ReasonOutputLimit}, TrailerInfo{}, "killed: it printed more than limits.output allows; print less, or write to a file"},
		{Exit{Reason: ReasonOutputLimit}, TrailerInfo{OutputLimit: 1 << 30}, "killed: it printed more than limits.output (1GiB) allows; print less, or write to a file"},
		{Exit{Reason: ReasonPIDs}, TrailerInfo{}, "too many processes; start fewer at once, or have the session made with --limit pids=N"},
		{
			Exit{Reason: ReasonPIDs, Code: 254, BackgroundKilled: 1},
			TrailerInfo{PIDsLimit: 256},
			"too many processes (limit 256); start fewer at once, or have the session made with --limit pids=N\n(1 process in the background was killed, since a call ends with its command: start a server and use it in one command)",
		},
		{Exit{Reason: ReasonExit, Refused: true}, TrailerInfo{PIDsLimit: 256}, "(exit code 0, but processes could not be started: too many processes (limit 256))"},
		{Exit{Reason: ReasonExit, Starved: true}, TrailerInfo{MemoryLimit: 64 << 20}, "(exit code 0, but processes were killed: out of memory (limit 64MiB))"},
		{Exit{Reason: ReasonMemory, Host: "it took too much; take less"}, TrailerInfo{MemoryLimit: 1 << 20}, "stopped: it took too much; take less"},
		{Exit{Reason: ReasonDisk, Code: 1}, TrailerInfo{}, "stopped: the disk of the host is nearly full; remove what is not needed, or have space freed there"},
		{Exit{Reason: ReasonDisk, Code: 2, Full: "/tmp"}, TrailerInfo{Room: " (8 MiB)"}, "exit code 2: no space left in /tmp (8 MiB); remove files there or write elsewhere"},
		{Exit{Reason: ReasonDisk, Code: -1, Signal: "SIGBUS", Full: "/tmp"}, TrailerInfo{}, "killed by SIGBUS: no space left in /tmp; remove files there or write elsewhere"},
		{Exit{Reason: ReasonSessionEnded}, TrailerInfo{}, "the session ended while the command ran"},
		{Exit{Reason: ReasonLost}, TrailerInfo{}, "the session ended while the command ran"},
	} {
		if got := Trailer(&tc.exit, tc.info); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.exit, got, tc.want)
		}
	}
}

// bashEnv is an Env whose Exec records what bash asks for.
func bashEnv(t *testing.T, exit *Exit, err error) (*Env, *Command) {
	t.Helper()
	env, _, dir := transferEnv(t)
	if err := errors.Join(os.MkdirAll(dir+"/elsewhere/x", 0o755), os.Mkdir(dir+"/elsewhere/y", 0o755), os.Symlink("/elsewhere/x", dir+"/w/x"),
		os.Symlink("loop", dir+"/w/loop"), os.Symlink("nowhere", dir+"/w/dangling"), os.WriteFile(dir+"/w/f", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	got := new(Command)
	return &Env{
		Root: env.Root, Worktree: "/w", Shell: []string{"/bin/bash", "--norc"}, Stream: new(bytes.Buffer),
		Exec: func(_ context.Context, c Command) (*Exit, error) { *got = c; return exit, err },
	}, got
}

func TestBashAsksFor(t *testing.T) {
	env, got := bashEnv(t, &Exit{Reason: ReasonExit, Code: 2, BackgroundKilled: 1}, nil)
	r, err := Bash{}.Run(t.Context(), env, json.RawMessage(`{"command":"a\nb","workdir":"x/../y","timeout":5}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Argv) != "[/bin/bash --norc -c a\nb]" || got.Dir != "/elsewhere/y" || got.Timeout != 5*time.Millisecond {
		t.Errorf("command %+v", got)
	}
	if r.Title != "a" || !strings.HasPrefix(r.Output, "exit code 2\n(1 process in the background was killed") || !r.IsError || r.Metadata["exit_code"] != int64(2) || r.Metadata["background_killed"] != int64(1) {
		t.Errorf("result %+v", r)
	}
	env, got = bashEnv(t, &Exit{Reason: ReasonSignal, Code: -1, Signal: "SIGKILL"}, nil)
	prep := &Prepared{Targets: []Target{{Path: "/resolved"}}}
	r, err = Bash{}.Run(t.Context(), env, json.RawMessage(`{"command":"a","description":"d"}`), prep)
	if err != nil || got.Dir != "/resolved" || got.Timeout != DefaultBashTimeout || r.Title != "d" || r.Metadata["signal"] != "SIGKILL" || r.Metadata["exit_code"] != nil {
		t.Errorf("%v %+v %+v", err, got, r)
	}
	long := strings.Repeat("é", 100)
	r, _ = Bash{}.Run(t.Context(), env, json.RawMessage(`{"command":"`+long+`"}`), nil)
	if want := strings.Repeat("é", 60) + "…"; r.Title != want {
		t.Errorf("title %q", r.Title)
	}
}

func TestBashTimeout(t *testing.T) {
	soon, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	near, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	over, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	for _, tc := range []struct {
		ctx    context.Context
		millis int64
		want   time.Duration
	}{
		{t.Context(), 0, DefaultBashTimeout},
		{t.Context(), 100, 100 * time.Millisecond},
		{t.Context(), 1 << 52, 365 * 24 * time.Hour},
		{soon, 1000, time.Second},
		{over, 0, time.Millisecond},
		{over, 1000, time.Millisecond},
	} {
		if got := bashTimeout(tc.ctx, tc.millis); got != tc.want {
			t.Errorf("%d: %v, want %v", tc.millis, got, tc.want)
		}
	}
	// How much of a call's time has passed meanwhile is for the machine to say.
	for _, millis := range []int64{0, 1 << 40} {
		if got := bashTimeout(soon, millis); got < 59*time.Minute || got > time.Hour || got%time.Second != 0 {
			t.Errorf("%d with an hour left: %v", millis, got)
		}
		if got := bashTimeout(near, millis); got <= 0 || got > 9*time.Second || got%(10*time.Millisecond) != 0 {
			t.Errorf("%d near the end: %v", millis, got)
		}
	}
}

func TestBashStartErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code Code
	}{
		{Errorf(CodeAborted, "x"), CodeAborted},
		{fmt.Errorf("start: %w", syscall.E2BIG), CodeInvalidInput},
		{fmt.Errorf("working directory /x: %w", syscall.ENOENT), CodeInvalidPath},
		{fmt.Errorf("working directory /x: %w", syscall.ELOOP), CodeStale},
		{errors.New("working directory gone"), CodeInvalidPath},
		{fmt.Errorf("start /bin/bash: %w", fs.ErrNotExist), CodeSandboxFailed},
		{errors.New("other"), ""},
	} {
		env, _ := bashEnv(t, nil, tc.err)
		_, err := Bash{}.Run(t.Context(), env, json.RawMessage(`{"command":"a"}`), nil)
		var e *Error
		if errors.As(err, &e) != (tc.code != "") || e != nil && e.Code != tc.code {
			t.Errorf("%v: got %v, want %s", tc.err, err, tc.code)
		}
	}
	env, _ := bashEnv(t, nil, nil)
	for _, in := range []string{`{`, `{"command":""}`, `{"command":"a\u0000"}`, `{"command":"a","timeout":-1}`, `{"command":"a","background":true}`, `{"command":"` + strings.Repeat("a", maxArgument) + `"}`} {
		if _, err := (Bash{}).Run(t.Context(), env, json.RawMessage(in), nil); err == nil || !strings.HasPrefix(err.Error(), "invalid_input") {
			t.Errorf("%.40s: %v", in, err)
		}
	}
}

// transferEnv is an Env on a real directory, with the process's own ids.
func transferEnv(t *testing.T) (*Env, *bytes.Buffer, string) {
	t.Helper()
	needs.OpenAt2(t)
	dir := t.TempDir()
	r, err := root.New(root.Config{Dir: dir, UID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	for _, d := range []string{"w", "out"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out := new(bytes.Buffer)
	return &Env{Root: r, Worktree: "/w", OutputDir: "/out", Stream: out}, out, dir
}

func TestBashPrepare(t *testing.T) {
	env, _, dir := transferEnv(t)
	if err := os.Symlink("/out", filepath.Join(dir, "w", "l")); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{`{"command":"a"}`: "/w", `{"command":"a","workdir":"l"}`: "/out"} {
		p, err := Bash{}.Prepare(t.Context(), env, json.RawMessage(in))
		if err != nil || p.Targets[0].Path != want {
			t.Errorf("%s: %+v %v", in, p, err)
		}
	}
	if _, err := (Bash{}).Prepare(t.Context(), env, json.RawMessage(`{"command":"a","workdir":"a\u0000"}`)); err == nil {
		t.Error("no error")
	}
	if _, err := (Bash{}).Prepare(t.Context(), env, json.RawMessage(`{`)); err == nil {
		t.Error("no error")
	}
}

func TestFilePut(t *testing.T) {
	env, _, dir := transferEnv(t)
	big := bytes.Repeat([]byte("0123456789"), 300_000)
	if err := os.WriteFile(filepath.Join(dir, "out", "put_1"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(in string) (*Result, error) {
		prep, err := FilePut{}.Prepare(t.Context(), env, json.RawMessage(in))
		if err != nil {
			return nil, err
		}
		return FilePut{}.Run(t.Context(), env, json.RawMessage(in), prep)
	}
	r, err := put(`{"from":"/out/put_1","path":"a/b/f","mode":493}`)
	if err != nil || r.IsError || r.Metadata["bytes"] != int64(len(big)) || r.Metadata["mode"] != "0755" || r.Metadata["created"] != true {
		t.Fatalf("%v %+v", err, r)
	}
	got, err := os.ReadFile(filepath.Join(dir, "w/a/b/f"))
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// One that is there keeps its mode.
	if err := os.WriteFile(filepath.Join(dir, "w/old"), []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	if r, err = put(`{"from":"/out/put_1","path":"/w/old","mode":493}`); err != nil || r.Metadata["mode"] != "0640" || r.Metadata["created"] != false {
		t.Errorf("%v %+v", err, r)
	}
	// Not judged as it is now.
	in := json.RawMessage(`{"from":"/out/put_1","path":"new"}`)
	prep, err := FilePut{}.Prepare(t.Context(), env, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "w/new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := (FilePut{}).Run(t.Context(), env, in, prep); !errors.As(err, &e) || e.Code != CodeStale {
		t.Errorf("appeared: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "w/d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "w/p"), 0o644); err != nil {
		t.Fatal(err)
	}
	for in, code := range map[string]Code{
		`{"from":"/out/put_1","path":"d"}`:             CodeNotRegularFile,
		`{"from":"/out/put_1","path":"p"}`:             CodeNotRegularFile,
		`{"from":"/out/put_1","path":""}`:              CodeInvalidPath,
		`{"from":"/w/old","path":"x"}`:                 CodeInvalidPath,
		`{"from":"/out/../w/old","path":"x"}`:          CodeInvalidPath,
		`{"from":"/out/","path":"x"}`:                  CodeInvalidPath,
		`{"from":"/out/..","path":"x"}`:                CodeInvalidPath,
		`{"from":"put_1","path":"x"}`:                  CodeInvalidPath,
		`{"from":"/out/put_1\u0000","path":"x"}`:       CodeInvalidPath,
		`{"from":1}`:                                   CodeInvalidInput,
		`{"from":"/out/put_1","path":"x","mode":"rw"}`: CodeInvalidInput,
	} {
		if _, err := put(in); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v, want %s", in, err, code)
		}
	}
	if r, err := put(`{"from":"/out/none","path":"x"}`); err != nil || !r.IsError {
		t.Errorf("missing upload: %v %+v", err, r)
	}
	if _, err := (FilePut{}).Run(t.Context(), env, json.RawMessage(`{"from":"/out/put_1","path":"unprepared"}`), nil); err != nil {
		t.Error(err)
	}
}

func TestFileGet(t *testing.T) {
	env, out, dir := transferEnv(t)
	data := bytes.Repeat([]byte{0, 255, '\n'}, 100_000)
	if err := os.WriteFile(filepath.Join(dir, "w/f"), data, 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/w/f", filepath.Join(dir, "w/l")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "w/p"), 0o644); err != nil {
		t.Fatal(err)
	}
	get := func(in string) (*Result, error) {
		out.Reset()
		prep, err := FileGet{}.Prepare(t.Context(), env, json.RawMessage(in))
		if err != nil {
			return nil, err
		}
		return FileGet{}.Run(t.Context(), env, json.RawMessage(in), prep)
	}
	for _, in := range []string{`{"path":"f"}`, `{"path":"/w/l"}`} {
		r, err := get(in)
		if err != nil || !bytes.Equal(out.Bytes(), data) || r.Metadata["size"] != int64(len(data)) || r.Metadata["mode"] != "0751" || r.Metadata["path"] != "/w/f" {
			t.Errorf("%s: %v %+v, %d bytes", in, err, r, out.Len())
		}
	}
	if _, err := (FileGet{}).Run(t.Context(), env, json.RawMessage(`{"path":"f"}`), nil); err != nil {
		t.Error(err)
	}
	var e *Error
	for in, code := range map[string]Code{`{"path":"p"}`: CodeNotRegularFile, `{"path":"."}`: CodeNotRegularFile, `{"path":""}`: CodeInvalidPath, `{`: CodeInvalidInput} {
		if _, err := get(in); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v, want %s", in, err, code)
		}
	}
	if r, err := get(`{"path":"none"}`); err != nil || !r.IsError {
		t.Errorf("missing: %v %+v", err, r)
	}
	env.Stream = failing{}
	if _, err := get(`{"path":"f"}`); !errors.Is(err, errClosedStream) {
		t.Errorf("stream that is closed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (FileGet{}).Run(ctx, env, json.RawMessage(`{"path":"f"}`), &Prepared{Targets: []Target{{Path: "/w/f"}}}); err == nil {
		t.Error("no error after the call was ended")
	}
}

var errClosedStream = errors.New("closed")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errClosedStream }

func TestBashPaths(t *testing.T) {
	env, _ := bashEnv(t, nil, nil)
	deep := strings.Repeat("d/", 1500) + "x"
	long := "export A=b; " + strings.Repeat("true; ", 50)
	env.Paths = []string{"x/../y", "/w/x", "new/deep/f", "", "/etc\x00", "loop/f", "/w/dangling", "/w/dangling/f", "x", deep, "/" + strings.Repeat("n", 5000), "//w//x/.", "f", "f/below", "x/" + long + "/f", long + "/../y", "dangling/" + long}
	prep, err := Bash{}.Prepare(t.Context(), env, json.RawMessage(`{"command":"a","workdir":"/w"}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Target{
		{Asked: "/w", Path: "/w", Exists: true, Kind: "dir"},
		{Path: "/elsewhere/y", Exists: true, Kind: "dir"},
		{Path: "/elsewhere/x", Exists: true, Kind: "dir"},
		{Path: "/w/new/deep/f"},
		{Path: "/w", Exists: true, Kind: "dir"},
		{Path: "/", Kind: "unknown"},
		{Path: "/w", Kind: "unknown"},
		{Path: "/w", Kind: "unknown"},
		{Path: "/w", Kind: "unknown"},
		{Path: "/elsewhere/x", Exists: true, Kind: "dir"},
		{Path: "/w/" + deep},
		{Path: "/", Kind: "unknown"},
		{Path: "/elsewhere/x", Exists: true, Kind: "dir"},
		{Path: "/w/f", Exists: true, Kind: "file"},
		{Path: "/w/f", Kind: "unknown"},
		// No file can have such a name: it is a script's text.
		{Path: "/elsewhere/x/" + long + "/f"},
		{Path: "/w", Kind: "unknown"},
		{Path: "/w", Kind: "unknown"},
	} {
		if i > 0 {
			want.Asked = env.Paths[i-1]
		}
		if got := prep.Targets[i]; got != want {
			t.Errorf("%.40q: %.200q\nwant %.200q", want.Asked, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
	env.Paths = make([]string, MaxPaths+1)
	_, err = Bash{}.Prepare(t.Context(), env, json.RawMessage(`{"command":"a"}`))
	if known, ok := errors.AsType[*Error](err); !ok || known.Code != CodeInvalidInput {
		t.Errorf("too many: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	env.Paths = []string{"f"}
	cancel()
	if _, err = (Bash{}).Prepare(ctx, env, json.RawMessage(`{"command":"a"}`)); err == nil {
		t.Error("prepared after it was ended")
	}
}

// TestBinarySize: a limit reads the same wherever it is named.
func TestBinarySize(t *testing.T) {
	for _, n := range []int64{0, 1, 1023, 1024, 1025, 64 << 10, 1536 << 20, 2 << 30, 2<<30 + 1, 1 << 40, 1 << 50} {
		if got, want := binarySize(n), client.Size(n).String(); got != want {
			t.Errorf("%d: %s, elsewhere %s", n, got, want)
		}
	}
}

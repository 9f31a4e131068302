package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// bashInput is the input of bash.
type bashInput struct {
	Command     string `json:"command"`
	Description string `json:"description,omitempty"`
	// Timeout is in milliseconds; 0 = the call's own bound, or DefaultBashTimeout.
	Timeout    int64  `json:"timeout,omitempty"`
	Workdir    string `json:"workdir,omitempty"`
	Background bool   `json:"background,omitempty"`
	Stdin      string `json:"stdin,omitempty"`
}

// MaxStdin is the most that a command can be given to read, in bytes.
const MaxStdin = 1 << 20

// DefaultBashTimeout holds where neither the input nor the call has one.
const DefaultBashTimeout = 120 * time.Second

// maxArgument is the longest single argument that the kernel takes, with its NUL.
const maxArgument = 128 << 10

// maxName is the longest name of a file that Linux's own file systems take, in bytes.
const maxName = 255

// Bash runs a command line in a fresh shell. Its output is streamed; the Result
// only says how it ended.
type Bash struct{}

// Name implements Tool.
func (Bash) Name() string { return "bash" }

// CommandJob runs a command line, for so long at most; 0 = as for any call.
func CommandJob(line string, timeout time.Duration) Job {
	fields := map[string]any{"command": line}
	if timeout > 0 {
		fields["timeout"] = timeout.Milliseconds()
	}
	return jobOf(Bash{}, fields)
}

// Prepare resolves the working directory, which is the first target, and after
// it Env.Paths; relative ones begin at the working directory. A path that names
// nothing resolves as far as it exists, and the rest stands behind it. One that
// cannot be resolved (a loop of links, a dangling one, no access) has the kind
// "unknown", and the path of the last place on its way that can.
func (Bash) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	var in bashInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	asked := cmp.Or(in.Workdir, env.Worktree)
	info, err := resolve(ctx, env, asked)
	if err != nil {
		return prepareFailure(BashTitle(in.Description, in.Command), nil, err)
	}
	prep := &Prepared{Targets: []Target{target(asked, info, false)}}
	if len(env.Paths) > MaxPaths {
		return nil, Errorf(CodeInvalidInput, "the command names %d paths; the limit is %d", len(env.Paths), MaxPaths)
	}
	for _, p := range env.Paths {
		t, err := bashTarget(ctx, env, info.Path, p)
		if err != nil {
			return nil, err
		}
		prep.Targets = append(prep.Targets, t)
	}
	return prep, nil
}

// bashTarget resolves one of Env.Paths as far as that can be done. The error is
// for what would fail for every path.
func bashTarget(ctx context.Context, env *Env, dir, asked string) (Target, error) {
	full := asked
	if !strings.HasPrefix(full, "/") {
		full = strings.TrimSuffix(dir, "/") + "/" + asked
	}
	t := Target{Asked: asked, Path: "/", Kind: string(root.KindUnknown)}
	info, err := env.Root.Resolve(ctx, full)
	if err == nil {
		t.Path, t.Exists, t.Kind = info.Path, info.Exists, string(info.Kind)
		return t, nil
	}
	if past, ok := tooLong(ctx, env, full, err); ok {
		t.Path, t.Kind = past, ""
		return t, nil
	}
	// A path resolves when all that begin it do.
	var ends []int
	for i, c := range full {
		if c == '/' && i > 0 {
			ends = append(ends, i)
		}
	}
	sort.Search(len(ends), func(i int) bool {
		var way root.Info
		if way, err = env.Root.Resolve(ctx, full[:ends[i]]); err == nil && len(way.Path) > len(t.Path) {
			t.Path = way.Path
		}
		return err != nil
	})
	switch root.CodeOf(err) {
	case root.Aborted, root.Broken:
		_, err := failure("", err)
		return t, err
	}
	return t, nil
}

// tooLong resolves a path through a name that no file of its directory can have, since
// it is too long: the text of a script, for one, is an argument too. The kernel has said
// so (err), nothing gets past that name, and so the path leads where its beginning does.
// One with ".." behind the name could be shortened by a program that takes both out.
func tooLong(ctx context.Context, env *Env, full string, err error) (path string, ok bool) {
	names := strings.Split(full, "/")
	i := slices.IndexFunc(names, func(name string) bool { return len(name) > maxName })
	if !errors.Is(err, syscall.ENAMETOOLONG) || i < 1 || slices.Contains(names[i:], "..") {
		return "", false
	}
	dir, err := env.Root.Resolve(ctx, cmp.Or(strings.Join(names[:i], "/"), "/"))
	if err != nil || !dir.Exists || dir.Kind != root.KindDir {
		return "", false
	}
	return strings.TrimSuffix(dir.Path, "/") + "/" + strings.Join(names[i:], "/"), true
}

// Run implements Tool.
func (Bash) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	var in bashInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	dir := env.Worktree // a mount point without links above it: there is nothing to resolve
	if in.Workdir != "" || prep != nil {
		var err error
		if dir, err = preparedPath(ctx, env, cmp.Or(in.Workdir, env.Worktree), prep); err != nil {
			return failure(BashTitle(in.Description, in.Command), err)
		}
	}
	timeout := bashTimeout(ctx, in.Timeout)
	exit, err := env.Exec(ctx, Command{
		Argv: append(slices.Clone(env.Shell), "-c", in.Command),
		Dir:  dir, Stdin: in.Stdin, Stdout: env.Stream, Stderr: env.Stream, Timeout: timeout,
	})
	if err != nil {
		return nil, bashStartError(ctx, env, err, dir)
	}
	return &Result{
		Title:    BashTitle(in.Description, in.Command),
		Output:   Trailer(exit, TrailerInfo{Timeout: timeout}),
		IsError:  exit.Reason != ReasonExit || exit.Code != 0,
		Metadata: exit.Metadata(),
	}, nil
}

func (in *bashInput) check() error {
	switch {
	case strings.TrimSpace(in.Command) == "":
		return Errorf(CodeInvalidInput, "command is empty")
	case strings.IndexByte(in.Command, 0) >= 0:
		return Errorf(CodeInvalidInput, "command has a NUL byte, which no program can be given")
	case len(in.Command) >= maxArgument:
		return Errorf(CodeInvalidInput, "command is %d bytes; the limit is %d: write it to a file and run that", len(in.Command), maxArgument-1)
	case in.Timeout < 0 || in.Timeout > int64(1<<53):
		return Errorf(CodeInvalidInput, "timeout is %d ms; it must be positive", in.Timeout)
	case strings.IndexByte(in.Workdir, 0) >= 0:
		return &Error{Code: CodeInvalidPath, Message: "workdir has a NUL byte", Hint: "leave the NUL byte out: no name has one"}
	case len(in.Stdin) > MaxStdin:
		return Errorf(CodeInvalidInput, "stdin has %d bytes; the limit is %d: write it to a file and name that", len(in.Stdin), MaxStdin)
	case in.Background:
		return Errorf(CodeInvalidInput, "background is not supported here: run the command without it")
	}
	return nil
}

// bashTimeout is the input's, else what is left of the call's, else the default.
func bashTimeout(ctx context.Context, millis int64) time.Duration {
	left := time.Duration(0)
	if d, ok := ctx.Deadline(); ok {
		// What has passed since the call began is not worth showing.
		left = time.Until(d)
		unit := time.Second
		if left < 10*time.Second {
			unit = 10 * time.Millisecond
		}
		// Nothing at all would be no bound.
		left = max(left.Round(unit), time.Millisecond)
	}
	switch {
	case millis > 0 && left > 0:
		return min(time.Duration(millis)*time.Millisecond, left)
	case millis > 0:
		return time.Duration(min(millis, int64(365*24*time.Hour/time.Millisecond))) * time.Millisecond
	case left > 0:
		return left
	default:
		return DefaultBashTimeout
	}
}

// TrailerInfo is what the text of a trailer needs to know.
type TrailerInfo struct {
	Timeout     time.Duration
	MostTimeout time.Duration // that the input may ask for; 0 = unknown
	MemoryLimit int64         // bytes, 0 = unknown
	PIDsLimit   int64         // 0 = unknown
	OutputLimit int64         // bytes, 0 = unknown
	// Room is how large the place is that was full, and which limit that follows
	// from; "" = unknown.
	Room string
}

// Trailer are the last lines of a program's output: how it ended, and what else was
// ended with it. It is empty after exit code 0, unless processes were killed or refused.
// The daemon calls it again, since it knows more than the agent could (memory, pids,
// disk, the longest timeout).
func Trailer(e *Exit, i TrailerInfo) string {
	var lines []string
	if how := howEnded(e, i); how != "" {
		lines = append(lines, how)
	}
	if e.Starved {
		lines = append(lines, "(exit code 0, but processes were killed: "+outOfMemory(i)+")")
	}
	if e.Refused {
		lines = append(lines, "(exit code 0, but processes could not be started: "+tooManyProcesses(i)+")")
	}
	switch e.Reason {
	case ReasonExit, ReasonSignal, ReasonDisk, ReasonMemory, ReasonPIDs: // otherwise all that ran was killed, as howEnded says
		if e.BackgroundKilled > 0 {
			lines = append(lines, killedBehind(e))
		}
	}
	if len(e.Locks) > 0 {
		lines = append(lines, locksLeft(e.Locks))
	}
	return strings.Join(lines, "\n")
}

// killedBehind says which processes did not outlive their call.
func killedBehind(e *Exit) string {
	count, were := plain.Count(e.BackgroundKilled, "process", "processes"), "were"
	if e.BackgroundKilled == 1 {
		were = "was"
	}
	var names []string
	for _, n := range e.BackgroundNames {
		names = append(names, plain.Name(n))
	}
	if len(names) > 0 {
		if e.BackgroundKilled > len(names) {
			names = append(names, "…")
		}
		count += " (" + strings.Join(names, ", ") + ")"
	}
	return fmt.Sprintf("(%s in the background %s killed, since a call ends with its command: start a server and use it in one command)", count, were)
}

// locksLeft says what stands in the way of the next git.
func locksLeft(locks []string) string {
	quoted := make([]string, len(locks))
	for i, path := range locks {
		quoted[i] = plain.Name(path)
	}
	return "(git was killed and left " + strings.Join(quoted, ", ") + ": when no git runs there, remove it, or git refuses to work)"
}

func howEnded(e *Exit, i TrailerInfo) string {
	switch e.Reason {
	case ReasonExit:
		if e.Code == 0 {
			return ""
		}
		return fmt.Sprintf("exit code %d", e.Code)
	case ReasonSignal:
		return "killed by " + e.Signal
	case ReasonTimeout:
		how := fmt.Sprintf("timed out after %s (partial output above)", seconds(i.Timeout))
		switch {
		case i.MostTimeout > i.Timeout:
			how += fmt.Sprintf("; set timeout up to %d for more time", i.MostTimeout.Milliseconds())
		case i.MostTimeout > 0:
			how += "; a call may take no longer: do it in smaller steps"
		}
		return how
	case ReasonAborted:
		return "aborted"
	case ReasonOutputLimit:
		limit := ""
		if i.OutputLimit > 0 {
			limit = " (" + binarySize(i.OutputLimit) + ")"
		}
		return "killed: it printed more than limits.output" + limit + " allows; print less, or write to a file"
	case ReasonMemory:
		if e.Host != "" {
			return "stopped: " + e.Host
		}
		if e.fullMemory() {
			return diskTrailer(e, i)
		}
		return outOfMemory(i) + "; do less at once, or have the session made with --limit memory=SIZE"
	case ReasonPIDs:
		return tooManyProcesses(i) + "; start fewer at once, or have the session made with --limit pids=N"
	case ReasonDisk:
		return diskTrailer(e, i)
	case ReasonSessionEnded, ReasonLost:
		return "the session ended while the command ran"
	default:
		return string(e.Reason)
	}
}

func outOfMemory(i TrailerInfo) string {
	if i.MemoryLimit > 0 {
		return fmt.Sprintf("out of memory (limit %s)", binarySize(i.MemoryLimit))
	}
	return "out of memory"
}

func tooManyProcesses(i TrailerInfo) string {
	if i.PIDsLimit > 0 {
		return fmt.Sprintf("too many processes (limit %d)", i.PIDsLimit)
	}
	return "too many processes"
}

// fullMemory reports whether a place in memory was full, rather than the memory.
func (e *Exit) fullMemory() bool { return e.Reason == ReasonMemory && e.Full != "" && e.Raise != "" }

// diskTrailer names the place that was full, and what helps.
func diskTrailer(e *Exit, i TrailerInfo) string {
	end := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != "" {
		end = "killed by " + e.Signal
	}
	if e.Full == "" {
		return "stopped: the disk of the host is nearly full; remove what is not needed, or have space freed there"
	}
	return fmt.Sprintf("%s: no space left in %s%s; remove files there or write elsewhere", end, e.Full, i.Room)
}

// seconds writes d as tools do: 120s, 1.5s, 250ms.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	s := fmt.Sprintf("%.3f", d.Seconds())
	return strings.TrimRight(strings.TrimRight(s, "0"), ".") + "s"
}

// binarySize writes n as limits are written: in the largest unit of which it is a whole multiple.
func binarySize(n int64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n > 0 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// Metadata is what a result says about its program.
func (e *Exit) Metadata() map[string]any {
	m := map[string]any{
		"reason":           string(e.Reason),
		"duration_ms":      e.DurationMillis,
		"cpu_ms":           e.CPUMillis,
		"max_memory_bytes": e.MaxMemoryBytes,
		"io_bytes":         e.IOBytes,
	}
	if e.Signal != "" {
		m["signal"] = e.Signal
	} else {
		m["exit_code"] = int64(e.Code)
	}
	if e.Reason == ReasonDisk && e.Full != "" || e.fullMemory() {
		m["full"] = e.Full
		if e.Raise != "" {
			m["raise"] = e.Raise
		}
	}
	if e.Reason == ReasonMemory && e.Host != "" {
		m["host"] = e.Host
	}
	if e.BackgroundKilled > 0 {
		m["background_killed"] = int64(e.BackgroundKilled)
	}
	if len(e.Locks) > 0 {
		m["locks"] = e.Locks
	}
	if len(e.Unseen) > 0 {
		m["unseen"] = e.Unseen
	}
	return m
}

// bashStartError words why the shell could not be started.
func bashStartError(ctx context.Context, env *Env, err error, dir string) error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, syscall.E2BIG):
		return Errorf(CodeInvalidInput, "command and environment are too large for the kernel: %v", err)
	case errors.Is(err, syscall.ELOOP):
		return Errorf(CodeStale, "workdir %q leads through a link now: it has changed since the call was judged", dir)
	case strings.HasPrefix(err.Error(), "working directory "):
		e := Errorf(CodeInvalidPath, "workdir %q: %v", dir, cause(err))
		if errors.Is(err, fs.ErrNotExist) {
			e.Message = "workdir: " + notFound(ctx, env, dir)
		}
		e.Hint = "give a directory that exists, or leave workdir out to run in the worktree"
		return e
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Code: CodeSandboxFailed, Message: fmt.Sprintf("the shell %s is not in the sandbox", env.Shell[0]), Hint: "name one that is in the configuration's [tools.bash] shell, or use a root filesystem that has it"}
	default:
		return err
	}
}

func cause(err error) error {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return err
}

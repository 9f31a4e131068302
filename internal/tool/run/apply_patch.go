package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/patch"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textdiff"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// ApplyPatch is the tool that changes several files by a patch: all of it or nothing.
type ApplyPatch struct{}

type patchInput struct {
	Patch string `json:"patch"`
}

// Name implements Tool.
func (ApplyPatch) Name() string { return "apply_patch" }

func (ApplyPatch) onlyFiles() {}

// Resolve implements Direct.
func (ApplyPatch) Resolve(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	p, err := patchOf(env, input)
	if err != nil {
		return nil, err
	}
	return p.resolve(ctx)
}

// Prepare implements Tool: it matches the whole patch and shows what it makes of all files.
func (ApplyPatch) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	p, err := patchOf(env, input)
	if err != nil {
		return nil, err
	}
	prep, err := p.resolve(ctx)
	if err != nil || prep.Result != nil {
		return prep, err
	}
	var size int64
	for i := range prep.Targets {
		info, err := env.Root.Resolve(ctx, prep.Targets[i].Path)
		if err != nil {
			return prepareFailure(p.title(), prep.Targets, err)
		}
		size += info.Size
	}
	held, err := p.reserve(ctx, size, input)
	if err != nil {
		return prepareFailure(p.title(), prep.Targets, err)
	}
	defer held.Release()
	for i := range prep.Targets {
		t := &prep.Targets[i]
		old, err := p.read(ctx, t.Path, readable(size))
		if err != nil {
			return prepareFailure(p.title(), prep.Targets, err)
		}
		if p.old[t.Path] = old; old.Exists {
			t.SHA256 = sha256Hex(old.Content)
		}
	}
	refused, err := p.plan(ctx)
	if err != nil {
		return nil, err
	}
	prep.Result, prep.Diff = refused, p.diff
	if refused == nil {
		prep.State = changeState{}.json()
	}
	return prep, nil
}

// Run implements Tool.
func (a ApplyPatch) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	prep, _, err := changeOf(ctx, a, env, input, prep)
	if err != nil {
		return nil, err
	}
	if prep.Result != nil {
		return prep.Result, nil
	}
	p, err := patchOf(env, input)
	if err != nil {
		return nil, err
	}
	p.leadTo(prep.Targets)
	tx, err := env.Root.BeginAll(ctx, prep.Paths())
	if err != nil {
		return p.failure(ctx, prep.Paths(), err)
	}
	defer tx.Close()
	refused, err := p.again(ctx, tx, input, prep)
	defer p.release()
	if refused != nil || err != nil {
		return refused, err
	}
	return p.commit(ctx, tx)
}

// patching is one patch on its way.
type patching struct {
	env      *Env
	settings editSettings
	files    []patch.File
	asked    []string
	leads    map[string]string // where what is asked for leads
	old      map[string]patch.Old
	held     *root.Reservation

	changes []patch.Change
	diff    string
	stat    map[string][2]int // lines that are added and removed
}

func patchOf(env *Env, input json.RawMessage) (*patching, error) {
	in, err := inputOf[patchInput](input)
	if err != nil {
		return nil, err
	}
	settings, err := settingsOf[editSettings](env)
	if err != nil {
		return nil, err
	}
	files, err := patch.Parse(in.Patch)
	if err != nil {
		return nil, Errorf(CodeInvalidInput, "%v", err)
	}
	return &patching{
		env: env, settings: settings, files: files, asked: patch.Paths(files),
		leads: make(map[string]string), old: make(map[string]patch.Old),
	}, nil
}

// title is what the patch is about.
func (p *patching) title() string {
	if t := patch.Title(p.asked); t != "" {
		return t
	}
	if path := p.leads[p.asked[0]]; path != "" {
		return relative(p.env, path)
	}
	return plain.Name(p.asked[0])
}

// resolve gives the targets, one for each path, in the order of the patch.
func (p *patching) resolve(ctx context.Context) (*Prepared, error) {
	prep := &Prepared{}
	for _, asked := range p.asked {
		info, err := resolve(ctx, p.env, asked)
		if err == nil {
			err = checkRegular(info)
		}
		if err != nil {
			return prepareFailure(p.title(), prep.Targets, err)
		}
		prep.Targets = append(prep.Targets, target(asked, info, true))
	}
	p.leadTo(prep.Targets)
	for i := range p.files {
		f := &p.files[i]
		if f.Kind == patch.Update && f.To == "" {
			continue
		}
		if info, err := p.env.Root.Lstat(ctx, fromWorktree(p.env, f.Path)); err == nil && info.Kind == root.KindSymlink {
			prep.Result = Failed(p.title(), "%s is a symbolic link to %s: name that file, or remove the link with bash. Nothing was changed.", plain.Name(f.Path), plain.Name(p.leads[f.Path]))
			return prep, nil
		}
	}
	return prep, nil
}

// leadTo notes where the paths lead.
func (p *patching) leadTo(targets []Target) {
	for _, t := range targets {
		p.leads[t.Asked] = t.Path
	}
}

// reserve waits for the memory that the files take, with the new content.
func (p *patching) reserve(ctx context.Context, size int64, input json.RawMessage) (*root.Reservation, error) {
	if size > maxEdit {
		return nil, &root.Error{Code: root.TooLarge, Msg: fmt.Sprintf("the files that the patch is about have %d bytes together, and it takes at most %d MiB: make several patches of it, or use bash", size, maxEdit>>20)}
	}
	return reserve(ctx, p.env, size, input)
}

// read is the file at a canonical path.
func (p *patching) read(ctx context.Context, path string, limit int64) (patch.Old, error) {
	info, file, err := p.env.Root.Look(ctx, path)
	if file != nil {
		defer func() { _ = file.Close() }()
	}
	if err != nil || file == nil {
		return patch.Old{}, err
	}
	if err := checkRegular(info); err != nil {
		return patch.Old{}, err
	}
	content, err := file.ReadAll(ctx, limit)
	return patch.Old{Exists: true, Content: content}, err
}

// again plans with the files as they are now that they are locked. They must be as Prepare
// saw them where that looked.
func (p *patching) again(ctx context.Context, tx *root.Transaction, input json.RawMessage, prep *Prepared) (*Result, error) {
	var size int64
	for _, path := range prep.Paths() {
		size += tx.Info(path).Size
	}
	var err error
	if p.held, err = p.reserve(ctx, size, input); err != nil {
		return failure(p.title(), err)
	}
	for _, was := range prep.Targets {
		content, err := tx.ReadOld(ctx, was.Path, readable(size))
		if err != nil {
			return failure(p.title(), err)
		}
		info := tx.Info(was.Path)
		if err := checkStale(info, was, content); err != nil {
			return nil, err
		}
		p.old[was.Path] = patch.Old{Exists: info.Exists, Content: content}
	}
	refused, err := p.plan(ctx)
	if err == nil && refused == nil && prep.State != nil && p.diff != prep.Diff {
		return nil, Errorf(CodeStale, "the patch would change other lines than when the call was judged")
	}
	return refused, err
}

func (p *patching) release() {
	if p.held != nil {
		p.held.Release()
	}
}

// plan is what the patch makes of the files, or why it makes nothing.
func (p *patching) plan(ctx context.Context) (*Result, error) {
	if r := p.unfit(); r != nil {
		return r, nil
	}
	changes, err := patch.Plan(ctx, p.files, func(asked string) string { return p.leads[asked] }, p.old)
	if conflict, ok := errors.AsType[*patch.ConflictError](err); ok {
		return p.conflict(ctx, conflict), nil
	}
	if err != nil {
		return nil, Errorf(CodeAborted, "stopped before the patch was matched: %v", err)
	}
	if len(changes) == 0 {
		return Failed(p.title(), "the patch changes nothing: the files read already as it would make them"), nil
	}
	for _, c := range changes {
		if err := checkSize(p.env, c.Path, int64(len(c.Content))); err != nil {
			return failure(p.title(), err)
		}
		if len(c.Content) > maxEdit {
			return Failed(p.title(), "cannot change %s: %s", relative(p.env, c.Path), &tooLargeError{len(c.Content)}), nil
		}
	}
	p.changes = changes
	p.describe()
	return nil, nil
}

// unfit is why a file that the patch updates cannot be read as it must be; nil for none.
func (p *patching) unfit() *Result {
	for i := range p.files {
		f := &p.files[i]
		path := p.leads[f.Path]
		old := p.old[path]
		if f.Kind != patch.Update || len(f.Hunks) == 0 || !old.Exists {
			continue
		}
		t := Target{Path: path, Exists: true}
		if r := refusal(p.env, p.settings, t, old.Content); r != nil {
			r.Title, r.Output = p.title(), r.Output+". Nothing was changed."
			return r
		}
	}
	return nil
}

// conflict tells why a patch does not fit.
func (p *patching) conflict(ctx context.Context, c *patch.ConflictError) *Result {
	r := Failed(p.title(), "the patch was not applied, and nothing was changed: %s.", c.Msg)
	if c.Missing {
		r.Output = strings.TrimSuffix(r.Output, ".") + meant(ctx, p.env, c.Path)
	}
	r.Metadata = map[string]any{"reason": "conflict", "path": c.Path, "line": c.Line}
	if m, ok := errors.AsType[*patch.MismatchError](c); ok {
		r.Metadata["hunk"] = m.Hunk
		if m.Places[0] == 0 { // else its lines are there, and none resembles them more
			r.Metadata["reason"], r.Quote = "not_found", nearestPassages(m.Nearest, "the patch")
		}
	}
	return r
}

// commit makes the changes.
func (p *patching) commit(ctx context.Context, tx *root.Transaction) (*Result, error) {
	all := make([]root.FileChange, 0, len(p.changes))
	for _, c := range p.changes {
		all = append(all, root.FileChange{Path: c.Path, Remove: c.Remove, Content: c.Content, Like: c.Like, Exec: c.Exec})
		if p.env.Seen != nil && !c.Remove {
			p.env.Seen.Note(c.Path, sha256Hex(c.Content)) // before it is there, see begun.commit
		}
	}
	done, err := tx.Commit(ctx, all, root.CommitOptions{Durable: p.settings.Durable})
	if err != nil {
		paths := make([]string, 0, len(all))
		for _, c := range all {
			paths = append(paths, c.Path)
		}
		return p.failure(ctx, paths, err)
	}
	return p.result(done), nil
}

// failure is changeFailure of a patch of these files: of one of them that is not in the worktree,
// if there is such.
func (p *patching) failure(ctx context.Context, paths []string, err error) (*Result, error) {
	i := slices.IndexFunc(paths, func(path string) bool { return outside(p.env, path) })
	r, err := changeFailure(ctx, p.env, paths[max(i, 0)], err)
	if r != nil {
		r.Title, r.Output = p.title(), r.Output+". Nothing was changed."
	}
	return r, err
}

// movedFrom is the file that came to a place by a move; "" = none.
func (p *patching) movedFrom(c *patch.Change) string {
	if c.Remove || c.Like == c.Path {
		return ""
	}
	return c.Like
}

// movedTo is where a file went that is removed; "" = nowhere.
func (p *patching) movedTo(path string) string {
	i := slices.IndexFunc(p.changes, func(c patch.Change) bool { return p.movedFrom(&c) == path })
	if i < 0 {
		return ""
	}
	return p.changes[i].Path
}

// action is what becomes of a file, in a word.
func (p *patching) action(c *patch.Change) string {
	switch {
	case c.Remove:
		return "deleted"
	case p.movedFrom(c) != "":
		return "moved"
	case !p.old[c.Path].Exists:
		return "created"
	}
	return "updated"
}

// result tells what was done.
func (p *patching) result(done []root.Committed) *Result {
	var out strings.Builder
	var paths []string
	var files []map[string]any
	added, removed, inexact, names, notKept := 0, 0, "", "", []string(nil)
	fmt.Fprintf(&out, "Applied the patch to %s:", plain.Count(len(p.changes), "file", "files"))
	for i := range p.changes {
		c := &p.changes[i]
		paths = append(paths, c.Path)
		title, stat := relative(p.env, c.Path), p.stat[c.Path]
		if c.Remove && p.movedTo(c.Path) != "" {
			continue
		}
		from := ""
		if m := p.movedFrom(c); m != "" {
			from = " from " + relative(p.env, m)
		}
		fmt.Fprintf(&out, "\n%s %s%s: %s", p.action(c), title, from, textdiff.Stat{Added: stat[0], Removed: stat[1]})
		added, removed = added+stat[0], removed+stat[1]
		files = append(files, map[string]any{"path": c.Path, "action": p.action(c), "lines_added": stat[0], "lines_removed": stat[1]})
		if c.Level > patch.Exact {
			inexact += fmt.Sprintf("\nLines of %s were not in the file exactly; they were found by %s matching.", title, c.Level)
		}
		for _, k := range done[i].NotKept {
			notKept = append(notKept, title+": "+k)
		}
		if n := done[i].Names; n > 0 {
			names += "\n" + relative(p.env, cmp.Or(p.movedFrom(c), c.Path)) + " " + parted(n)
		}
	}
	if len(notKept) > 0 {
		fmt.Fprintf(&out, "\nNot kept: %s.", strings.Join(notKept, ", "))
	}
	out.WriteString(names + inexact)
	r := &Result{Title: p.title(), Output: out.String(), Metadata: map[string]any{
		"paths": paths, "files": files, "diff": cutMetadata(p.diff), "lines_added": added, "lines_removed": removed, "truncated": false,
	}}
	r.Quote = whatChanged(p.diff, inexact != "", len(p.changes) > 1)
	return r
}

// describe makes the diff that a person judges the patch by: all of its changes, or how
// many of them it does not show.
func (p *patching) describe() {
	p.stat = make(map[string][2]int)
	var b strings.Builder
	hidden := 0
	for i := range p.changes {
		c := &p.changes[i]
		text := p.describeOne(c, MaxDiff-2048-b.Len())
		if b.Len()+len(text) > MaxDiff-1024 {
			hidden++
			continue
		}
		b.WriteString(text)
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "… and the changes of %s, which are too long to be shown\n", plain.Count(hidden, "more file", "more files"))
	}
	p.diff = b.String()
}

// describeOne is the part of the diff about one file, of about most bytes.
func (p *patching) describeOne(c *patch.Change, most int) string {
	name, head := plain.Name(c.Path), ""
	old := p.old[c.Path].Content
	switch from := p.movedFrom(c); {
	case c.Remove && p.movedTo(c.Path) != "":
		return ""
	case c.Remove:
		head = fmt.Sprintf("deleted: %s\n", name)
	case from != "":
		head, old = fmt.Sprintf("moved: %s to %s\n", plain.Name(from), name), p.old[from].Content
	case !p.old[c.Path].Exists:
		head = fmt.Sprintf("created: %s\n", name)
	}
	if c.Exec != nil && *c.Exec {
		head += fmt.Sprintf("made executable: %s\n", name)
	} else if c.Exec != nil {
		head += fmt.Sprintf("made not executable: %s\n", name)
	}
	for _, content := range [][]byte{old, c.Content} {
		if kind := textfile.Sniff(content); !kind.Text && len(content) > 0 {
			return head + fmt.Sprintf("%s: %s, %s\n", name, plain.Count(len(content), "byte", "bytes"), kind.Name)
		}
	}
	diff, stat := diffWithin(c.Path, old, c.Content, max(most, 0))
	p.stat[c.Path] = [2]int{stat.Added, stat.Removed}
	return head + diff
}

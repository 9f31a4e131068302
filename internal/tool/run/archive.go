package run

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/treetar"
)

// archiveInput is the input of the tools that move a whole tree.
type archiveInput struct {
	Path     string `json:"path"`
	MaxBytes int64  `json:"max_bytes"`
}

func treeJob(t Tool, path string, most int64) Job {
	return jobOf(t, map[string]any{"path": path, "max_bytes": most})
}

// prepareArchive resolves the directory.
func prepareArchive(ctx context.Context, env *Env, input json.RawMessage, write bool) (*Prepared, error) {
	var in archiveInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	prep, err := prepareTarget(ctx, env, in.Path, write, func(info root.Info) error {
		if !info.Exists || info.Kind == root.KindDir {
			return nil
		}
		e := Errorf(CodeNotRegularFile, "%s is not a directory but a %s", plain.Name(info.Path), info.Kind)
		e.Hint = "name a directory, or move it as a file"
		return e
	})
	if err == nil && prep.Result == nil && !write && !prep.Targets[0].Exists {
		path := prep.Targets[0].Path
		prep.Result = Failed(relative(env, path), "%s", notFound(ctx, env, path))
	}
	return prep, err
}

// treeResult says what became of a tree: did is what was done to it, verb what could not be
// done to some of it.
func treeResult(env *Env, top string, c *treetar.Count, did, verb string, hidden *unread, what [2]string) *Result {
	var b strings.Builder
	b.WriteString(c.Text(did) + ".\n")
	for _, note := range c.Notes(verb) {
		b.WriteString("\n(" + note + ".)\n")
	}
	meta := map[string]any{
		"path": top, "files": c.Files, "directories": c.Dirs, "links": c.Links, "bytes": c.Bytes,
		"skipped": c.Skipped.N, "failed": c.Failed.N, "short": c.Short,
	}
	hidden.note(&b, meta, false, what[0], what[1])
	return &Result{Title: relative(env, top), Output: b.String(), Metadata: meta}
}

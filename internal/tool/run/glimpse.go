package run

import (
	"context"
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/readrule"
	"github.com/toold/toold/internal/tool/run/root"
)

const (
	// smallTree is how many entries one thread of ripgrep searches before a second one
	// would have started.
	smallTree = 128
	// countedTree is how many entries are looked at for one that rules may hide before
	// ripgrep is asked, which knows those that ignore files exclude.
	countedTree = 50_000
)

// repositories are the names of what version control keeps for itself. They are left
// out wherever they are below the directory that is listed.
var repositories = []string{".git", ".hg", ".svn", ".jj"}

// glimpse is what a look at the names below a directory has shown, whatever ignore files
// say of them.
type glimpse struct {
	whole   bool // no entry was left out
	mayHide bool // rules may hide one of them
}

// glimpseAt looks at up to most entries below dir. What cannot be read holds nothing that
// could be found.
func glimpseAt(ctx context.Context, r *root.Root, rules *readrule.Rules, dir string, most int) (g glimpse) {
	lent := r.Lend(ctx, func() {
		for dirs := []string{dir}; len(dirs) > 0 && most > 0 && ctx.Err() == nil; dirs = dirs[1:] {
			in := dirs[0]
			keep := func(name []byte, kind root.Kind) bool {
				most--
				g.mayHide = g.mayHide || rules != nil && rules.MayHide(in, name)
				return kind != root.KindFile
			}
			_ = r.ReadDirOnly(ctx, in, keep, func(e root.Entry) bool {
				if e.Kind == root.KindDir && !slices.Contains(repositories, e.Name) {
					dirs = append(dirs, strings.TrimSuffix(in, "/")+"/"+e.Name)
				}
				return most > 0
			})
		}
	})
	g.whole = lent == nil && most > 0 && ctx.Err() == nil
	return g
}

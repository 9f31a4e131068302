package errand

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
)

// Dirs lists the directories among the first most entries of a directory, as the tool user.
// check is as that of File. The names are as listings show them, and an agent may say anything.
// more says that there are other entries. A directory that is not there has none.
func (e *Errand) Dirs(ctx context.Context, dir string, most int, limit time.Duration, check func(*run.Target) error) (names []string, more bool, err error) {
	r := e.request(run.ListingJob(dir, most), 0, limit)
	prep, err := e.Conn.Prepare(ctx, r)
	switch {
	case err != nil:
		return nil, false, err
	case len(prep.Targets) == 0 && prep.Result != nil:
		return nil, false, errors.New(plain.Cut(prep.Result.Output, maxNote))
	case len(prep.Targets) == 0 || !prep.Targets[0].Exists:
		return nil, false, nil
	}
	if err := check(&prep.Targets[0]); err != nil {
		return nil, false, err
	}
	r.Prepared = prep
	result, err := e.do(ctx, r, silent)
	if err != nil {
		return nil, false, err
	}
	for line := range strings.Lines(result.Output) {
		if name, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), "/"); ok {
			if len(names) == most {
				return names, true, nil
			}
			names = append(names, name)
		}
	}
	more, _ = result.Metadata["truncated"].(bool)
	return names, more, nil
}

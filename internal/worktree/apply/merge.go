package apply

import (
	"context"
	"fmt"
	"io"
)

// merge has the files merged that have changed on both sides, and says of all changes that
// something is in the way of whether that counts.
func (s *survey) merge(ctx context.Context, merge Merger) error {
	for _, c := range s.changes {
		if c.left != chosen || c.done {
			continue
		}
		if c.why != "" && c.kept && !c.hard {
			if err := s.mergeOne(ctx, merge, c); err != nil {
				return fmt.Errorf("merge %s: %w", shown(c.path), err)
			}
		}
		switch {
		case c.why != "" && (c.hard || !s.job.Request.Force):
			s.conflicts.add(c.path, c.why)
		case !c.done:
			s.tasks = append(s.tasks, c.task())
		}
	}
	return nil
}

func (s *survey) mergeOne(ctx context.Context, merge Merger, c *change) error {
	merged, ok, err := merge(ctx, Both{
		Path: c.path, Source: io.NewSectionReader(s.spool.f, c.ours, c.now.Size), Session: io.NewSectionReader(s.spool.f, c.at, c.size),
	})
	if err != nil || !ok {
		return err
	}
	if int64(len(merged)) > s.spool.limits.Bytes-s.spool.at {
		return tooLarge("more than %d MiB with what was merged", s.spool.limits.Bytes>>20)
	}
	if _, err := s.spool.f.WriteAt(merged, s.spool.at); err != nil {
		return err
	}
	c.at, c.size, c.sum = s.spool.at, int64(len(merged)), sumOf(string(merged))
	s.spool.at += c.size
	c.merged, c.why = true, ""
	c.done = c.now.is(c.want())
	return nil
}

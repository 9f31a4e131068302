package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/tool/run/textdiff"
)

// Files that are merged have at most that many bytes and lines, in each version.
const (
	maxMerge      = 4 << 20
	maxMergeLines = 200_000
)

// keeps says whether the source's content is kept: to merge it, or for sessions that began
// with it.
func (s *survey) keeps(c *change, st *unix.Stat_t) bool {
	if c.kind != beneath.File && c.put() || st.Size > maxMerge || st.Size > s.spool.limits.Bytes-s.spool.data {
		return false
	}
	if s.job.Request.Merge && c.put() {
		return true
	}
	if s.job.Request.DryRun {
		return false
	}
	for _, o := range s.job.Others {
		if o.began(st.Ctim.Nano()) {
			return true
		}
	}
	return false
}

// merge merges files that have changed on both sides, if the request wants that, and says
// of all changes that something is in the way of whether that counts.
func (s *survey) merge() error {
	for _, c := range s.changes {
		if c.left != chosen || c.done {
			continue
		}
		if err := s.over(); err != nil {
			return err
		}
		if c.status == client.ChangeAdded && c.why == "" && c.now.Kind == "" && s.bases.has(c.path) {
			c.why = "it was removed since the session began"
		}
		if c.why != "" && !c.hard && s.job.Request.Merge && c.kind == beneath.File && c.old == beneath.File && c.now.Kind == beneath.File {
			if err := s.mergeOne(c); err != nil {
				return fmt.Errorf("merge %s: %w", shown(c.path), err)
			}
		}
		switch {
		case c.why != "" && (c.hard || !s.job.Request.Force):
			s.conflicts.add(c.path, c.why)
			if c.hard {
				s.conflicts.next = nextHard
			} else if s.conflicts.next == "" && !s.job.Request.Merge && c.now.Kind == beneath.File && s.bases.file(c.path) {
				s.conflicts.next = nextMerge
			}
		case c.why != "" && c.theirs:
			c.done = true
		case !c.done:
			c.over = c.why != ""
			s.tasks = append(s.tasks, c.task())
		}
	}
	return nil
}

// mergeOne merges a file, or adds to what is in its way why it cannot be merged.
func (s *survey) mergeOne(c *change) error {
	merged, perm, err := s.merged(c)
	if why, ok := errors.AsType[inTheWay](err); ok {
		c.why += "; " + string(why)
		return nil
	}
	if err != nil {
		return err
	}
	if int64(len(merged)) > s.spool.limits.Bytes-s.spool.data {
		return tooLarge("more than %d MiB with what was merged", s.spool.limits.Bytes>>20)
	}
	if err := s.spool.write([]byte(merged), s.spool.at); err != nil {
		return err
	}
	c.merged, c.why = c.of(), ""
	c.at, c.size, c.sum, c.perm, c.mtime = s.spool.at, int64(len(merged)), sumOf(merged), perm, 0
	s.spool.at += c.size
	s.spool.data += c.size
	c.done = c.now.is(c.want())
	step("merged")
	return nil
}

// The reasons why a file is not merged.
const (
	errNoBase    = inTheWay("it is not known what the session began with, to merge it")
	errBinary    = inTheWay("it is not merged, because it is binary or too large")
	errSameLines = inTheWay("both sides have changed the same lines")
	errBothModes = inTheWay("both sides have changed its mode")
)

// merged gives what both sides have made of a file.
func (s *survey) merged(c *change) (text string, perm uint32, err error) {
	if o, wrote := s.own[c.path]; wrote && o.Of == "" {
		return "", 0, errNoBase // what it was changed from is what an earlier job wrote
	}
	base, was, err := s.state.readBase(&s.bases, c.path)
	if err != nil {
		return "", 0, err
	}
	if !c.kept || c.size > maxMerge {
		return "", 0, errBinary
	}
	versions := [][]byte{base, make([]byte, c.now.Size), make([]byte, c.size)}
	for i, at := range []int64{c.ours, c.at} {
		if _, err := s.spool.f.ReadAt(versions[i+1], at); err != nil && !errors.Is(err, io.EOF) {
			return "", 0, err
		}
	}
	for _, v := range versions {
		if bytes.IndexByte(v, 0) >= 0 || bytes.Count(v, []byte{'\n'}) > maxMergeLines {
			return "", 0, errBinary
		}
	}
	switch perm = c.perm; {
	case perm == was:
		perm = c.now.Perm
	case c.now.Perm != was && c.now.Perm != perm:
		return "", 0, errBothModes
	}
	text, ok := textdiff.Merge(base, versions[1], versions[2])
	if !ok {
		return "", 0, errSameLines
	}
	return text, perm, nil
}

// tellMerged tells which files were merged, also where the source had all of it already.
func (s *survey) tellMerged(r *report) {
	left := make(map[string]bool)
	for i := range r.left {
		left[string(r.tasks[i].Path)] = true
	}
	for _, c := range s.changes {
		if c.merged != "" && !left[c.path] && s.job.Merged != nil {
			s.job.Merged(c.path)
		}
	}
}

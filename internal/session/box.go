package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/session/elsewhere"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/store"
)

// destroyTime bounds the removal of one sandbox.
const destroyTime = 30 * time.Second

// box is the part of a session that is its sandbox, with the directories that are mounted
// into it.
type box struct{ roster *roster }

// claim opens worktree and mounts, so that nothing can be put into their place
// between the check and the mount.
func (b box) claim(_ context.Context, pl *plan) error {
	p, set := pl.p, pl.set
	w := pl.req.Worktree
	pl.req.Worktree.Seen = "" // in requests alone
	pl.spec.Worktree = sandbox.Worktree{Mode: w.Mode, Target: w.Target, GuardGit: set.GuardGit && w.Mode == client.WorktreeBind}
	if pl.seed.Void {
		f, err := b.roster.cfg.Trees.Void()
		if err != nil {
			return err
		}
		sw := &pl.spec.Worktree
		sw.Source, sw.UID, sw.GID = f, pl.seed.From.UID, pl.seed.From.GID
	} else if w.Source != "" {
		rules := set.worktreeRules(p)
		rules.Git = true
		if w.Mode == client.WorktreeBind {
			rules.Write, rules.Linked = true, w.Target
		}
		d, err := b.roster.pinDirectory(p, rules, w.Source)
		if w.Seen != "" && errors.Is(err, fs.ErrNotExist) {
			return otherMounts("worktree.source", w.Source, "there is none")
		}
		if err != nil {
			return fmt.Errorf("worktree.source: %w", err)
		}
		if err := checkSeen("worktree.source", w.Source, w.Seen, d.File); err != nil {
			return errors.Join(err, d.Close())
		}
		if rules.Write && !pl.seed.Internal {
			disk := room.From(&d.Disk)
			if _, err := b.roster.disk.accepts(set, promise{}, &disk); err != nil {
				_ = d.File.Close()
				return err
			}
		}
		sw := &pl.spec.Worktree
		sw.Source, sw.UID, sw.GID = d.File, d.UID, d.GID
		pl.hold(d, w.Target, &b.roster.mounts)
		for _, l := range d.Linked {
			sw.Linked = append(sw.Linked, sandbox.Linked(l))
		}
		var taken []string
		for _, mt := range pl.req.Mounts {
			taken = append(taken, mt.Target)
		}
		if d.Repository && w.Identity == nil && w.Mode != client.WorktreeRO && !pl.seed.Internal {
			pl.notes = append(pl.notes, authorless)
		}
		if pl.git = elsewhere.Show(d, w.Source, w.Target, taken, checkTargets); pl.git != nil && pl.git.Mount != nil {
			pl.spec.Mounts = append(pl.spec.Mounts, *pl.git.Mount)
		}
	}
	for i := range pl.req.Mounts {
		if pl.req.Mounts[i].Mode == client.MountCow {
			continue // caching has it
		}
		d, err := b.roster.pinMount(pl, &pl.req.Mounts[i])
		if err != nil {
			return err
		}
		pl.spec.Mounts = append(pl.spec.Mounts, mountOf(d, pl.req.Mounts[i].Target))
		pl.hold(d, pl.req.Mounts[i].Target, &b.roster.mounts)
	}
	return nil
}

// checkSeen refuses a directory that is not the one which the client sees at the same path.
func checkSeen(field, source, seen string, dir *os.File) error {
	if seen == "" {
		return nil
	}
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if client.SeenAs(info) != seen {
		return otherMounts(field, source, "it is another one")
	}
	return nil
}

func otherMounts(field, source, is string) error {
	return fault.BadPath.Errorf("%s: %s is not the directory for toold that it is for you: for toold %s", field, plain.Name(source), is).
		Next("toold has mounts of its own: a unit with PrivateTmp=yes has other files in /tmp and /var/tmp, and a container all but what is mounted into it. Use a directory that both have, such as one below /home or /srv")
}

// addSkills mounts the skills that have scripts, behind all else.
func (b box) addSkills(s *Session, pl *plan) error {
	row := s.Row()
	rules, err := b.roster.court.RulesWithout(row.Tenant, row.Profile, &row)
	if err != nil {
		return err
	}
	mounts := skillMounts(pl.set.Skills, rules)
	pl.spec.Mounts, pl.skills = append(pl.spec.Mounts, mounts...), len(mounts)
	return nil
}

// open makes the sandbox, and stores its record.
func (b box) open(ctx context.Context, s *Session, pl *plan) error {
	if err := b.addSkills(s, pl); err != nil {
		return err
	}
	sb, err := pl.driver.Create(ctx, pl.spec)
	refused := func() bool { return errors.Is(err, sandbox.ErrMountTarget) || errors.Is(err, sandbox.ErrUnsupported) }
	if n := len(pl.spec.Mounts) - pl.skills; pl.skills > 0 && refused() {
		pl.notes = append(pl.notes, "scripts of skills are not in the sandbox, which cannot have mounts of their directories")
		for _, m := range pl.spec.Mounts[n:] {
			_ = m.Source.Close()
		}
		pl.spec.Mounts = pl.spec.Mounts[:n]
		sb, err = createAgain(ctx, pl)
	}
	if pl.git != nil && pl.git.Mount != nil && refused() {
		pl.git.Hide("this sandbox has no place for it")
		_ = pl.spec.Mounts[0].Source.Close() // it was opened for its path alone
		pl.spec.Mounts = pl.spec.Mounts[1:]
		sb, err = createAgain(ctx, pl)
	}
	if err != nil {
		return fmt.Errorf("create sandbox %s: %w", s.id, err)
	}
	s.mu.Lock()
	s.sb = sb
	s.mu.Unlock()
	rec := sb.Record()
	raw, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("record of sandbox %s: %w", s.id, err)
	}
	return s.write("", func(r *store.Session) error {
		r.Record, r.Runtime, r.Granted, r.OnlyMounts = raw, rec.Runtime, b.roster.cfg.Private, b.onlyMounts(pl)
		r.Alone = r.OnlyMounts && (len(pl.req.Mounts) == 0 || r.Granted)
		return nil
	})
}

// onlyMounts reports whether a session reaches nothing of a person's beside its worktree, whose
// repository belongs to it, and its mounts. What its maker has asked for is none of that, where there is no other
// user. Whoever set up the daemon has chosen what images and root filesystems show, and whoever
// promotes a cache shows it to all.
func (b box) onlyMounts(pl *plan) bool {
	shared := func(u cache.Use) bool { return u.Mode != client.CacheCow }
	from := func(c client.CacheUse) bool { return len(c.From) > 0 }
	return pl.skills == 0 && !b.roster.cfg.Shows &&
		!slices.ContainsFunc(pl.caches.uses, shared) && !slices.ContainsFunc(pl.req.Caches, from)
}

// closable are the mounts that are kept from commands of which a path is only known at run time. One that has the
// repository of the worktree is none: git goes there by itself; nor is one that a variable of the environment
// names, as GOMODCACHE does, since programs are to find it there.
func closable(row *store.Session, git *elsewhere.View, env []string) []string {
	places := judge.PlacesOf(row)
	return slices.DeleteFunc(places.Closable(), func(mount string) bool {
		return git.Within(mount) || slices.ContainsFunc(env, func(variable string) bool { return tellsOf(variable, mount) })
	})
}

// tellsOf reports whether a variable of an environment names a path in dir, or a directory above it: alone, in a list, in
// a URL or behind the letter of an option.
func tellsOf(variable, dir string) bool {
	for at := range strings.FieldsFuncSeq(variable, func(c rune) bool { return strings.ContainsRune(" \t\n:;,='\"", c) }) {
		switch {
		case strings.HasPrefix(at, "//") && !strings.HasPrefix(at, "///"):
			continue // a host, of a URL
		case strings.HasPrefix(at, "-"):
			if i := strings.IndexByte(at, '/'); i >= 0 {
				at = at[i:]
			}
		}
		if at = path.Clean(at); at != "/" && path.IsAbs(at) && (policy.RelativeTo(dir, at) != "" || policy.RelativeTo(at, dir) != "") {
			return true
		}
	}
	return false
}

// createAgain makes the sandbox with fewer mounts. What the attempt before it left in the layers
// for writing is removed.
func createAgain(ctx context.Context, pl *plan) (sandbox.Sandbox, error) {
	overlays := []*sandbox.Overlay{pl.spec.Worktree.Overlay}
	for _, m := range pl.spec.Mounts {
		overlays = append(overlays, m.Overlay)
	}
	for _, o := range overlays {
		if o == nil || o.Upper == nil {
			continue
		}
		if err := mount.ClearUpper(o.Upper); err != nil {
			return nil, fmt.Errorf("layer %s of an attempt that failed: %w", o.Upper.Name(), err)
		}
	}
	return pl.driver.Create(ctx, pl.spec)
}

func (b box) adopt(ctx context.Context, s *Session) error {
	switch s.row.State {
	case client.SessionCreating:
		return errors.New("the daemon stopped while it was made")
	case client.SessionEnding:
		return errors.New(s.row.Reason)
	}
	if s.row.Internal {
		return errors.New("the daemon stopped while it was used for a request")
	}
	if b.roster.leases.Lost(s.row.UIDBase) {
		return errors.New("another daemon has its range of host uids: that took it while no daemon ran, or this state directory is a copy of that one's, whose sessions live on")
	}
	sb, err := s.driver.Adopt(ctx, b.roster.recordOf(&s.row))
	if errors.Is(err, sandbox.ErrGone) {
		return errors.New("its sandbox ended while no daemon ran")
	}
	if err != nil {
		return fmt.Errorf("its sandbox could not be taken over: %w", err)
	}
	s.mu.Lock()
	s.sb = sb
	s.mu.Unlock()
	if late, ok := sb.(sandbox.Late); ok && s.row.HomeDisk && late.Held() == 0 {
		s.promised.Store(int64(homeDisk(&s.row.Limits)))
	}
	s.gauges.from(ctx)
	return nil
}

// close removes the sandbox. Its notes are what did not come back from it.
func (b box) close(s *Session, _ ending, _ error) (notes []string, err error) {
	s.mu.Lock()
	sb := s.sb
	rec := b.roster.recordOf(&s.row)
	s.mu.Unlock()
	s.agent.Close()
	d, far := s.driver.(sandbox.Returning)
	if !far { // the processes of others die on their own host
		b.roster.destroys <- struct{}{}
		defer func() { <-b.roster.destroys }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyTime)
	defer cancel()
	s.measure(ctx) // for the last time: nobody can ask a cgroup that is gone
	if far {
		notes, err = d.Return(ctx, rec)
	} else {
		err = s.driver.Destroy(ctx, rec)
	}
	if sb != nil {
		err = errors.Join(err, sb.Close())
	}
	if err != nil {
		s.log.Error("remove the sandbox", "error", err)
	}
	return notes, err
}

// leftovers are sandboxes whose session is not live, or whose incarnation is another.
func (b box) leftovers(ctx context.Context) (all []leftover, errs error) {
	for _, d := range b.roster.cfg.Drivers {
		recs, err := d.List(ctx, b.roster.cfg.Owner)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("list sandboxes of driver %s: %w", d.Name(), err))
			continue
		}
		for _, rec := range recs {
			if s := b.roster.liveByID(rec.SessionID); s != nil && s.Row().Incarnation == rec.Incarnation {
				continue
			}
			all = append(all, leftover{
				Garbage: client.Garbage{Kind: "container", Name: rec.SessionID, Session: rec.SessionID},
				remove:  func() error { return d.Destroy(ctx, rec) },
			})
		}
	}
	return all, errs
}

// sandboxID is that of a session's sandbox.
func sandboxID(owner string, row *store.Session) sandbox.ID {
	return sandbox.ID{SessionID: row.ID, Incarnation: row.Incarnation, Owner: owner, UIDBase: row.UIDBase}
}

// recordOf is the driver's record of a session. Before the driver gave one, it
// is what List and Destroy can go by.
func (dm *daemon) recordOf(row *store.Session) sandbox.Record {
	var rec sandbox.Record
	if len(row.Record) == 0 || json.Unmarshal(row.Record, &rec) != nil {
		return sandbox.Record{ID: sandboxID(dm.cfg.Owner, row), Runtime: row.Runtime}
	}
	return rec
}

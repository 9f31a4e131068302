package session

import (
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/elsewhere"
	"github.com/toold/toold/internal/session/holder"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/layers"
)

// plan is a request that was checked, with all that it names held open.
type plan struct {
	p        auth.Principal // who asks
	set      *Settings
	req      client.SessionCreate
	asked    client.Limits // as the request named them
	disk     client.Size   // limits.disk of one that has a disk; there is no default for nothing
	homeDisk bool          // the home directory is on one
	promised promise
	kept     func() // called when what is promised is made, or never will be; nil for nothing
	driver   sandbox.Driver
	spec     sandbox.Spec
	holdings        // until the session has taken it over
	start    uint64 // of the lease process
	token    string
	hash     []byte
	notes    []string // for the session's
	seed     trees.Seed
	layers   *layers.Opened // of a worktree of mode overlay
	changes  client.Size    // the bound of what it writes there; 0 = none
	git      *elsewhere.View
	caches   cachePlan
	sources  []store.Source // the worktree's first, if it has one
	skills   int            // how many mounts at the end are skills

	keyHash []byte // of the request; nil without a key
}

// close lets go of the pinned directories: the sandbox has mounts of its own.
func (p *plan) close() {
	if p.spec.Worktree.Source != nil {
		_ = p.spec.Worktree.Source.Close()
	}
	for _, mt := range p.spec.Mounts {
		_ = mt.Source.Close()
	}
	p.layers.Close()
	p.caches.close()
	if p.image != nil {
		p.image.Release()
	}
	p.holder.Close()
	if p.kept != nil {
		p.kept()
	}
}

// hold notes which directory of the host a session is given, and what is mounted in it.
func (p *plan) hold(d *worktree.Directory, target string, mounts *worktree.Mounts) {
	p.sources = append(p.sources, store.Source{Source: d.Source, Target: target, Mounted: mounts.In(d.File)})
}

// holdings are what parts hold of the host for a session, or for the request that makes it.
type holdings struct {
	image  *sandbox.HeldImage // nil for none
	holder *holder.Process    // of its lease; nil for none
}

// cachePlan is what a request asks for of caches, with the host's directories held open.
type cachePlan struct {
	uses []cache.Use
	// mounts are in the order of the directories of the uses; their Source is one of the
	// host's, nil for none.
	mounts []sandbox.Mount
	places []store.CachePlace // those that are bounded
	env    map[string]string
	opened *cache.Opened
}

func (c *cachePlan) close() {
	for _, m := range c.mounts {
		if m.Source != nil {
			_ = m.Source.Close() // it was opened for its path alone
		}
	}
	c.opened.Close()
}

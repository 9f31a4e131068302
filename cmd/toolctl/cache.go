package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/plain"
)

const cacheLong = `List, fill, promote and remove what is kept of caches for later sessions.

A session with "--cache go" begins with what is kept of the cache, and writes to a layer
of its own, which is thrown away with it: no session sees what another one wrote there.
"promote" makes the cache of a session, as it is then, what later sessions of the tenant
begin with. That is for admins, and for the users of a tenant whose session has a profile
that the configuration names ([[cache]] promote). "fill" does it with what you have on
this host yourself.`

func newCacheCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "Keep caches of compilers and package managers for sessions",
		Long:  cacheLong,
		Example: `  toolctl cache fill go
  toolctl cache ls
  toolctl cache promote main-build go`,
	}
	c.AddCommand(newCacheListCommand(a), newCacheFillCommand(a), newCachePromoteCommand(a), newCacheRmCommand(a))
	return c
}

func newCacheListCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List what is kept of caches",
		Example: "  toolctl cache ls\n  toolctl cache ls -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			cl := a.client()
			caches, err := ofTenants(a, func(all bool) ([]client.Cache, error) {
				l, err := cl.ListCaches(c.Context(), client.CacheQuery{AllTenants: all})
				if err != nil {
					return nil, err
				}
				return l.Items, nil
			}, cacheTenant, "cache")
			if err != nil {
				return err
			}
			return printCaches(a, caches)
		},
	}
	a.allTenantsFlag(c, "list those of all tenants")
	return c
}

func cacheTenant(x *client.Cache) string { return x.Tenant }

func printCaches(a *app, caches []client.Cache) error {
	t := a.newTable("nothing is kept of caches; begin with: toolctl cache fill NAME, or toolctl cache promote SESSION NAME",
		"NAME", "MODE", "BYTES", "SIZE", "MADE", "USED", "OF SESSION")
	return printTenants(a, caches, func(x *client.Cache) string { return x.Name }, cacheTenant, t, func(x *client.Cache) {
		t.row(x.Name, string(x.Mode), bytesShort(x.Bytes), sizeText(x.Size), ago(x.Made, time.Now()), ago(x.Used, time.Now()), x.Session)
	})
}

func sizeText(s client.Size) string {
	if s == 0 {
		return "no bound"
	}
	return bytesShort(int64(s))
}

// printCache shows what was just promoted.
func printCache(a *app, x *client.Cache) error {
	return a.print(view{data: x, names: []string{x.Name}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s is what later sessions begin with: %s, %s\n", line(x.Name), bytesShort(x.Bytes), plain.Count(x.Files, "file", "files"))
		if x.Skipped > 0 {
			fmt.Fprintf(w, "%s left out, since only files, directories and links are kept\n", plain.Count(x.Skipped, "entry was", "entries were"))
		}
	}})
}

func newCachePromoteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "promote SESSION CACHE",
		Short: "Make a session's cache what later sessions begin with",
		Long: `Make the cache of a live session, as it is now, what later sessions of the tenant begin
with. It takes the place of what was there in one step. No call may run in the session
meanwhile. Later sessions run what this one compiled: promote only what you trust.`,
		Example:           "  toolctl cache promote main-build go",
		ValidArgsFunction: firstThen(a.sessions, cacheNames),
		RunE: func(c *cobra.Command, args []string) error {
			cl := a.client()
			return a.withSession(c.Context(), cl, args[0], func(session string) error {
				return promoteCache(c.Context(), a, cl, session, args[1])
			})
		},
	}
}

func promoteCache(ctx context.Context, a *app, c *client.Client, session, name string) error {
	progress := a.progress("copying the cache " + line(name))
	made, err := c.PromoteCache(ctx, session, name)
	progress.stop()
	if err != nil {
		return err
	}
	return printCache(a, made)
}

func cacheNames(context.Context, []string) ([]cobra.Completion, error) { return builtin.Names(), nil }

func newCacheRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "rm CACHE...", Short: "Remove what is kept of caches",
		Long:              "Remove what is kept of caches. Sessions that have it keep it; later ones begin with nothing.",
		Example:           "  toolctl cache rm go npm",
		ValidArgsFunction: always(cacheNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.forEach(args, func(name string) error {
				if err := a.client().RemoveCache(c.Context(), name); err != nil {
					return fmt.Errorf("remove cache %s: %w", name, err)
				}
				return a.done(name, "removed")
			})
		},
	}
}

func newCacheFillCommand(a *app) *cobra.Command {
	var from []string
	c := &cobra.Command{
		Use:   "fill NAME",
		Short: "Keep what you have of a cache on this host for sessions",
		Long: `Copy what you have of a cache on this host, such as the modules and the build cache of
Go, to where later sessions begin with it. It takes the place of what was there. The
directories are those that your environment names (GOCACHE, GOMODCACHE, npm_config_cache,
PIP_CACHE_DIR, ...), or else those that the program uses by itself; --from names others.
For admins, since all later sessions can read and run what was copied.`,
		Example:           "  toolctl cache fill go\n  toolctl cache fill go --from mod=/srv/modules\n  toolctl cache fill bazel --from bazel=/srv/bazel",
		ValidArgsFunction: inOrder(cacheNames),
		RunE:              func(c *cobra.Command, args []string) error { return fillCache(c.Context(), a, args[0], from) },
	}
	c.Flags().StringArrayVar(&from, "from", nil, "directory of the host `NAME=DIR`, by its name in the cache (repeatable)")
	return c
}

// fillCache makes a session that begins with directories of the host, and promotes it.
func fillCache(ctx context.Context, a *app, name string, from []string) (err error) {
	use := []client.CacheUse{{Name: name, From: map[string]string{}}}
	for _, f := range from {
		dir, path, ok := strings.Cut(f, "=")
		if !ok || dir == "" || path == "" {
			return usagef("--from %q: write NAME=DIR, such as mod=/srv/modules", f)
		}
		if use[0].From[dir], err = hostDir(path); err != nil {
			return usagef("--from %q: %w", f, err)
		}
	}
	if len(from) == 0 {
		fromHost(use, []string{name}, a.getenv)
	}
	if len(use[0].From) == 0 {
		return fmt.Errorf("there is nothing of the cache %s on this host to fill it with: name directories with --from", line(name))
	}
	for _, dir := range slices.Sorted(maps.Keys(use[0].From)) {
		a.say("%s/%s: %s", line(name), line(dir), line(use[0].From[dir]))
	}
	c := a.client()
	s, err := createSession(ctx, a, c, client.SessionCreate{Caches: use, LeasePID: os.Getpid()})
	if err != nil {
		return err
	}
	defer func() {
		_, e := c.EndSession(context.WithoutCancel(ctx), s.ID, client.EndOptions{Force: true})
		if err == nil {
			err = e
		}
	}()
	return promoteCache(ctx, a, c, s.ID, name)
}

// fromHost has caches begin with what this user has of them on this host.
func fromHost(caches []client.CacheUse, asked []string, getenv func(string) string) {
	for i := range caches {
		if !slices.Contains(asked, caches[i].Name) {
			continue
		}
		known, ok := builtin.Find(caches[i].Name)
		if !ok {
			continue
		}
		caches[i].From = known.OnHost(getenv, func(path string) bool {
			fi, err := os.Stat(path)
			return err == nil && fi.IsDir()
		})
		for name, path := range caches[i].From {
			if real, err := filepath.EvalSymlinks(path); err == nil { // the daemon follows no link
				caches[i].From[name] = real
			}
		}
	}
}

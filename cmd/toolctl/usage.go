package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newUsageCommand(a *app) *cobra.Command {
	var watch watchFlag
	c := &cobra.Command{
		Use:   "usage",
		Short: "Show what each tenant uses, or your own",
		Long: `Show what each tenant uses now, its limit after a slash, and its total of CPU time and
disk I/O since the daemon began to count. QUEUED are requests that wait for one of
its sessions to end; LAYERS is what its sessions wrote into the writable layers of
their images, WORKTREES what they changed in worktrees of mode overlay. Who is no admin sees their
own tenant.`,
		Example: "  toolctl usage\n  toolctl usage -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			return watch.run(c.Context(), a, func(ctx context.Context) error {
				tenants, err := a.client().Usage(ctx)
				if err != nil {
					return err
				}
				return printUsage(a, tenants)
			})
		},
	}
	watch.register(c)
	return c
}

func printUsage(a *app, tenants []client.TenantUsage) error {
	t := a.newTable("no tenants; [tenant.NAME] in config.toml makes one", "TENANT", "SESSIONS", "QUEUED", "CALLS", "CPU TIME", "MEMORY", "OUTPUTS", "LAYERS", "WORKTREES", "RECORDS", "I/O")
	return printList(a, tenants, func(x *client.TenantUsage) string { return x.Tenant }, t, func(u *client.TenantUsage) {
		t.row(u.Tenant, share(u.Sessions, u.MaxSessions, strconv.Itoa), strconv.Itoa(u.Queued), share(u.Calls, u.MaxCalls, strconv.Itoa),
			(time.Duration(u.CPUMillis) * time.Millisecond).String(), bytesShort(u.MemoryBytes), bytesShort(u.DiskBytes), bytesShort(u.LayerBytes), bytesShort(u.WorktreeBytes),
			share(u.RecordBytes, u.MaxRecordBytes, bytesShort), bytesShort(u.IOBytes))
	})
}

// share is how much of what a tenant may have is used; most 0 is no bound.
func share[N int | int64](used, most N, text func(N) string) string {
	if most == 0 {
		return text(used)
	}
	return text(used) + "/" + text(most)
}

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newUsageCommand(a *app) *cobra.Command {
	var watch watchFlag
	c := &cobra.Command{
		Use:   "usage",
		Short: "Show what each tenant uses",
		Long: `Show what each tenant uses now, and what it has used of processor and disk since
the daemon began to keep count. For admins.`,
		Example: "  toolctl usage\n  toolctl usage -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return watch.run(c.Context(), a, func(ctx context.Context) error {
				tenants, err := a.client().Usage(ctx)
				if err != nil {
					return err
				}
				return a.printUsage(tenants)
			})
		},
	}
	watch.register(c)
	return c
}

func (a *app) printUsage(tenants []client.TenantUsage) error {
	names := make([]string, len(tenants))
	for i := range tenants {
		names[i] = tenants[i].Tenant
	}
	return a.print(view{data: client.List[client.TenantUsage]{Items: tenants}, names: names, text: func(w io.Writer) {
		t := a.newTable("TENANT", "SESSIONS", "CALLS", "CPU TIME", "MEMORY", "OUTPUTS", "RECORDS", "I/O")
		for _, u := range tenants {
			t.row(u.Tenant, fmt.Sprint(u.Sessions), fmt.Sprint(u.Calls), (time.Duration(u.CPUMillis) * time.Millisecond).String(),
				bytesShort(u.MemoryBytes), bytesShort(u.DiskBytes), bytesShort(u.RecordBytes), bytesShort(u.IOBytes))
		}
		t.write(w)
	}})
}

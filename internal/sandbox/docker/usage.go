package docker

import (
	"context"
	"encoding/json"

	"github.com/docker/docker/api/types/container"

	"github.com/toold/toold/client"
)

// usage asks the Engine what a container has used, which takes it some milliseconds.
func (e *engine) usage(ctx context.Context, id string) (client.Usage, error) {
	return ask(ctx, e, askTime, "measure container "+id, func(ctx context.Context) (client.Usage, error) {
		r, err := e.c.ContainerStatsOneShot(ctx, id)
		if err != nil {
			return client.Usage{}, err
		}
		defer r.Body.Close()
		var s container.StatsResponse
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			return client.Usage{}, err
		}
		const most = 1 << 62 // what the Engine says may be anything
		return client.Usage{
			CPUMillis:   int64(min(s.CPUStats.CPUUsage.TotalUsage/1e6, most)),
			MemoryBytes: int64(min(s.MemoryStats.Usage, most)),
			PIDs:        int64(min(s.PidsStats.Current, most)),
		}, nil
	})
}

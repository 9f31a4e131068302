package session

import (
	"context"

	"github.com/toold/toold/client"
)

// Usage implements API.
func (m *Manager) Usage(context.Context) ([]client.TenantUsage, error) { return nil, nil }

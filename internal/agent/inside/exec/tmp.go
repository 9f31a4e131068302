package exec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
)

// freeTime bounds FreeTmp: a tool may make files as fast as they are removed.
const freeTime = 8 * time.Second

// FreeTmp removes all that is in dirs, as the tool user, on a thread of its own
// that ends with it; a name may be "". It gives up after some seconds.
func (p *Programs) FreeTmp(ctx context.Context, dirs ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freeTime,
		fmt.Errorf("not done after %v; something makes files as fast as they are removed, end it first", freeTime))
	defer cancel()
	_, err := thread.Run(func() (struct{}, error) {
		if s := p.spawner; s.uid >= 0 {
			if err := setEffective(s.uid, s.gid); err != nil {
				return struct{}{}, err
			}
		}
		var errs []error
		for _, dir := range dirs {
			if dir != "" {
				errs = append(errs, beneath.Empty(ctx, dir))
			}
		}
		return struct{}{}, errors.Join(errs...)
	})
	return err
}

package wire

import (
	"context"
	"net"
	"time"
)

// HelloTime bounds the handshake where the context does not.
const HelloTime = 10 * time.Second

// BoundHello bounds the handshake on c, by HelloTime and by the end of ctx. It sets
// the former first: the end of ctx must be the last to have its say. After stop, ctx
// has nothing to do with c any more.
func BoundHello(ctx context.Context, c *net.UnixConn) (stop func() bool, err error) {
	err = c.SetDeadline(time.Now().Add(HelloTime))
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }), err
}

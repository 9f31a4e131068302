package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/descriptor"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
)

// network tries the boundary of a session whose rules deny every connection, against a
// listener on this host.
func (d *Doctor) network(ctx context.Context, p auth.Principal, runtime, suffix string) client.Check {
	check := client.Check{Group: "network", Name: "rules" + suffix, Status: client.CheckWarn, Probed: true}
	nw, ok := d.cfg.Drivers[d.cfg.Driver].(sandbox.Networking)
	err := sandbox.ErrUnsupported
	if ok {
		err = nw.Networking(runtime)
	}
	if err != nil {
		check.Detail = "sessions of this runtime have no network: " + err.Error()
		return check
	}
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		check.Detail = "a listener could not be made: " + err.Error()
		return check
	}
	defer func() { _ = l.Close() }()
	denied := []client.RuleOf{{Permission: "network", Pattern: "*", Action: "deny"}}
	err = d.cfg.Sessions.Throwaway(ctx, p, client.SessionCreate{
		Runtime: runtime, Labels: map[string]string{"toold/probe": runtime}, TTL: client.Duration(10 * time.Minute),
		Network: client.Network{Mode: client.NetworkRules}, Permission: denied,
	}, func(_ *client.Session, call Call) {
		pr := boundary(l.Addr().(*net.TCPAddr).Port)
		check = pr.run(call)
		check.Name += suffix
	})
	if fe, ok := errors.AsType[*fault.Error](err); ok && fe.Kind == fault.Forbidden {
		check.Status, check.Detail = client.CheckOK, `sessions have no network: [network] mode is "none"`
		return check
	}
	if err != nil {
		check.Status, check.Detail = client.CheckFail, "a session with network rules could not be made: "+err.Error()
	}
	if n := reached(l); n > 0 {
		check.Status, check.Detail = client.CheckFail, fmt.Sprintf("%s reached a listener of this host that no rule allows", plain.Count(n, "connection", "connections"))
		check.Hint = `set [network] mode = "none" until this is understood`
	}
	return check
}

// boundary asks the proxy for a port of this host, and tries the port itself.
func boundary(port int) *probe {
	return &probe{
		group: "network", name: "rules",
		script: guard + fmt.Sprintf(`(exec 3<>/dev/tcp/127.0.0.1/3128 && printf 'CONNECT 127.0.0.1:%[1]d HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\n\r\n' >&3 && head -c 12 <&3); echo; `+
			`for to in 127.0.0.1 192.0.2.1; do (exec 3<>/dev/tcp/$to/%[1]d && echo "$to answers") 2>/dev/null; done; echo done`, port),
		judge: func(c *client.Call) (bool, string) {
			refused := strings.HasPrefix(c.Output, "HTTP/1.1 403") && strings.Contains(c.Output, "\ndone") && !strings.Contains(c.Output, "answers")
			return refused, "connections that no rule allows are refused, and none arrived at a listener of this host"
		},
	}
}

// reached counts who has come to a listener: until then they wait in the kernel.
func reached(l *net.TCPListener) int {
	n, _ := descriptor.Use(l, func(fd int) (n int, _ error) {
		for {
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			switch {
			case err == nil:
				_ = unix.Close(c)
			case !errors.Is(err, unix.ECONNABORTED): // that one has come too
				return n, nil
			}
			n++
		}
	})
	return n
}

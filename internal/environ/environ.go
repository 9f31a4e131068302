// Package environ has the environments of tools: what may be in one, and how it is put together.
package environ

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/wire"
)

// Bounds of an environment, in variables and bytes.
const (
	maxEnv      = 256
	maxEnvName  = 256
	maxEnvValue = 64 << 10
	maxEnvTotal = 256 << 10
)

var envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// shown is what a message may quote of something that a client sent.
func shown(s string) string { return plain.Cut(s, 80) }

// Check refuses an environment that no tool may have.
func Check(env map[string]string) error {
	if len(env) > maxEnv {
		return fault.In(fault.Invalid.Errorf("env has %d variables; at most %d", len(env), maxEnv), "env")
	}
	total := 0
	for k, v := range env {
		switch {
		case len(k) > maxEnvName || !envPattern.MatchString(k):
			return fault.In(fault.Invalid.Errorf("env %q: a name has letters, digits and '_', does not begin with a digit, and at most %d bytes", shown(k), maxEnvName), "env")
		case wire.RefusedVariable(k):
			return fault.In(fault.Invalid.Errorf("env %s is refused: it changes what programs run; set it inside the command instead", k), "env", k)
		case len(v) > maxEnvValue:
			return fault.In(fault.Invalid.Errorf("env %s has %d bytes; at most %d", k, len(v), maxEnvValue), "env", k)
		case strings.ContainsRune(v, 0):
			return fault.In(fault.Invalid.Errorf("env %s has a NUL byte", k), "env", k)
		case k == "PATH" && slices.ContainsFunc(strings.Split(v, ":"), relative):
			return fault.In(fault.Invalid.Errorf("env PATH has an entry that is empty or relative, by which a name is another program in each directory; write absolute ones"), "env", k)
		}
		total += len(k) + len(v) + 2
	}
	if total > maxEnvTotal {
		return fault.In(fault.Invalid.Errorf("env has %d bytes in all; at most %d", total, maxEnvTotal), "env")
	}
	return nil
}

// Network is what programs have to be told of a session's network.
type Network int

// Networks: Transparent needs nothing; with None package managers give up at once; Relayed is
// reached by the proxies on the session's loopback alone.
const (
	Transparent Network = iota
	None
	Relayed
)

// Tools is the whole environment of a session's tools: a list built from nothing.
// Over what all sessions have come those for its network, then base, what the root
// filesystem says, PATH at least, and env, what the session was made with.
func Tools(network Network, base, env map[string]string) []string {
	all := map[string]string{
		"HOME": sandbox.Home, "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": "/tmp",
		"USER": "tool", "LOGNAME": "tool", "SHELL": "/bin/bash",
	}
	switch network {
	case None:
		maps.Copy(all, offline)
	case Relayed:
		maps.Copy(all, relayed)
	}
	maps.Copy(all, base)
	maps.Copy(all, env)
	return List(all)
}

// offline are variables that tell package managers that there is no network: they
// say so at once, where they would try for a minute. The session's own stand over
// these. pip has no such variable that leaves an index in a file or on this host
// alone; without retries it gives up at once.
var offline = map[string]string{
	"npm_config_offline": "true",
	"PIP_RETRIES":        "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
	"UV_OFFLINE":        "1",
	"CARGO_NET_OFFLINE": "true",
	"GOPROXY":           "off",
}

// relayed are variables that lead programs to the proxies, in the cases that they read. Git, npm
// and apt read these too; Node from 22.21 and 24 on reads them when it is told to. Java reads its
// own, of which each start of a JVM tells in one line on standard error.
var relayed = map[string]string{
	"HTTP_PROXY": "http://127.0.0.1:3128", "http_proxy": "http://127.0.0.1:3128",
	"HTTPS_PROXY": "http://127.0.0.1:3128", "https_proxy": "http://127.0.0.1:3128",
	"ALL_PROXY": "socks5h://127.0.0.1:1080", "all_proxy": "socks5h://127.0.0.1:1080",
	"NO_PROXY": "localhost,127.0.0.1,::1", "no_proxy": "localhost,127.0.0.1,::1",
	"NODE_USE_ENV_PROXY": "1",
	"JAVA_TOOL_OPTIONS":  "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128",
}

// List is KEY=VALUE, in a fixed order.
func List(env map[string]string) []string {
	if len(env) == 0 {
		return nil
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

// imagePath is PATH for tools in images that say none.
const imagePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// OfImage is what the tools get of an image's environment. What says
// where the session's own places are and who its user is stays the session's, and
// what makes programs do something else than their command line says never passes.
func OfImage(list []string) map[string]string {
	env := map[string]string{"PATH": imagePath}
	total := 0
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok || len(name) > maxEnvName || !envPattern.MatchString(name), wire.RefusedVariable(name), sessionsOwn[name]:
			continue
		case len(value) > maxEnvValue || strings.ContainsRune(value, 0) || !utf8.ValidString(value):
			continue
		case name == "PATH":
			if value = AbsolutePath(value); value == "" {
				continue
			}
		}
		if total += len(kv) + 1; total > maxEnvTotal || len(env) >= maxEnv {
			break
		}
		env[name] = value
	}
	return env
}

// sessionsOwn are the variables that no image decides.
var sessionsOwn = map[string]bool{
	"HOME": true, "TERM": true, "TMPDIR": true, "USER": true, "LOGNAME": true, "SHELL": true,
	"PWD": true, "OLDPWD": true, "SHLVL": true, "_": true, "CDPATH": true,
}

func relative(dir string) bool { return !path.IsAbs(dir) }

// AbsolutePath leaves the entries of a PATH that are absolute: an empty or
// relative one would mean the directory that a command happens to run in.
func AbsolutePath(list string) string {
	var kept []string
	for dir := range strings.SplitSeq(list, ":") {
		if path.IsAbs(dir) {
			kept = append(kept, dir)
		}
	}
	return strings.Join(kept, ":")
}

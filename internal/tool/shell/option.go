package shell

import (
	"slices"
	"strings"
)

// kindOptions are, by program, the options that take the next word as their value and may stand
// before or among the words that say what kind of command it is. Of options that are not here
// both readings are made, so an entry is for what else would be read as too much: a rule that
// denies "kubectl delete *" is not about "kubectl -n delete get pods". To add one, read the
// program's manual.
var kindOptions = map[string]map[string]bool{
	"cargo":     setOf("--color", "--config", "-C", "-Z"),
	"docker":    setOf("--config", "-c", "--context", "-H", "--host", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey", "-f", "--file", "-p", "--project-name", "--project-directory", "--profile", "--env-file", "--builder"),
	"gh":        setOf("-R", "--repo", "--hostname"),
	"glab":      setOf("-R", "--repo"),
	"go":        setOf("-C"),
	"helm":      setOf("--kube-context", "--kubeconfig", "-n", "--namespace", "--registry-config", "--repository-cache", "--repository-config"),
	"kubectl":   setOf("--as", "--as-group", "--cache-dir", "--certificate-authority", "--client-certificate", "--client-key", "--cluster", "--context", "--kubeconfig", "-n", "--namespace", "--password", "--profile", "--request-timeout", "-s", "--server", "--tls-server-name", "--token", "--user", "--username", "-v"),
	"npm":       setOf("--prefix", "-C", "--registry", "--userconfig", "--globalconfig", "--cache", "--loglevel", "--tag", "--otp", "-w", "--workspace"),
	"pip":       setOf("--python", "--log", "--proxy", "--retries", "--timeout", "--cache-dir", "--cert", "--trusted-host"),
	"pnpm":      setOf("-C", "--dir", "--filter", "-F", "--loglevel", "--reporter"),
	"podman":    setOf("--connection", "-c", "--identity", "--url", "--log-level", "--root", "--runroot", "--storage-driver"),
	"systemctl": setOf("-H", "--host", "-M", "--machine", "-t", "--type", "-p", "--property", "-o", "--output", "-n", "--lines"),
	"uv":        setOf("--directory", "--project", "--config-file", "--cache-dir", "--color"),
	"yarn":      setOf("--cwd"),
}

// otherReadings are the commands that k may be whose kind is not its first words, since options
// stand before or among them: "docker --context x run a" is "docker run a". Each is in
// plain form. git's are listed in full (see leadingOptions).
func (c *scanner) otherReadings(k *call) []string {
	if k.name == "git" || len(k.args) < 3 || arity([]string{k.name}) < 2 {
		return nil
	}
	option := func(i int) bool { return strings.HasPrefix(k.args[i].value, "-") }
	if !option(1) && (!option(2) || arity([]string{k.name, k.args[1].value}) < 3) {
		return nil // no kind has more words than three
	}
	// at is a place among the arguments, with the words of the kind that are known there.
	type at struct {
		next  int
		kind  []word
		after bool // an option was left out
	}
	var all []string
	open := append(make([]at, 0, 4), at{next: 1, kind: k.args[:1:1]})
	add := func(a at) {
		same := func(b at) bool {
			return a.next == b.next && a.after == b.after &&
				slices.EqualFunc(a.kind, b.kind, func(x, y word) bool { return x.value == y.value })
		}
		if !slices.ContainsFunc(open, same) {
			open = append(open, a)
		}
	}
	words := make([]string, 0, 4)
	for i := 0; i < len(open); i++ {
		if len(all) > maxReadings || i > 20*maxReadings {
			c.opaque("%s has more options before its command than can be judged", k.name)
			return nil
		}
		p := open[i]
		words = append(words[:0], k.name)
		for _, w := range p.kind[1:] {
			words = append(words, w.value)
		}
		if p.next == len(k.args) || len(words) >= arity(words) {
			if p.after {
				if text := c.plainForm(slices.Concat(p.kind, k.args[p.next:]), k.redir, ""); !slices.Contains(all, text) {
					all = append(all, text)
				}
			}
			continue
		}
		o := k.args[p.next]
		if o.many || !o.fixed && !option(p.next) {
			c.looseKind(k, o)
			return nil
		}
		if !option(p.next) {
			add(at{p.next + 1, append(slices.Clip(p.kind), o), p.after})
			continue
		}
		// Of one that goes on with what is only known at run time both readings are made.
		takes := p.next+1 < len(k.args) && (!o.fixed || o.value != "--" && !strings.Contains(o.text, "="))
		if !takes || !o.fixed || !kindOptions[k.name][o.value] {
			add(at{p.next + 1, p.kind, true})
		}
		if takes {
			if value := k.args[p.next+1]; value.many {
				c.looseKind(k, value)
				return nil
			}
			add(at{p.next + 2, p.kind, true})
		}
	}
	return all
}

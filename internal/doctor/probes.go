package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// guard makes a probe refuse to run outside a sandbox: one that ran on a host by
// mistake would do there what it is meant to be kept from.
const guard = "[ -e " + sandbox.MarkerFile + " ] || { echo not in a sandbox; exit 99; }\n"

// reason says that a limit must end the program, and be named for it.
func reason(want, detail string) func(*client.Call) (bool, string) {
	return func(c *client.Call) (bool, string) {
		got := fmt.Sprint(c.Metadata["reason"])
		if got == want {
			return true, detail
		}
		return false, fmt.Sprintf("expected the end by %q, got %q", want, got)
	}
}

// says wants a text in the output; the script prints it when the defence held.
func says(want, detail string) func(*client.Call) (bool, string) {
	return func(c *client.Call) (bool, string) {
		if strings.Contains(c.Output, want) {
			return true, detail
		}
		return false, fmt.Sprintf("expected %q", want)
	}
}

// holds is says for scripts that print HOLDS, with what was seen after it.
func holds(c *client.Call) (bool, string) {
	_, seen, ok := strings.Cut(c.Output, "HOLDS")
	seen, _, _ = strings.Cut(strings.TrimSpace(seen), "\n")
	if !ok {
		return false, "it does not hold"
	}
	return true, seen
}

// limitProbes reach each limit of the session, and the next call must work: it
// is the next probe.
func limitProbes() []probe {
	return []probe{
		{
			group: "limit", name: "memory",
			script: guard + "head -c 400M /dev/zero | tail -c 400M | wc -c; exit ${PIPESTATUS[1]}",
			judge:  reason("memory", "a program above it was killed, the session lives"),
			hint:   "the memory cgroup controller must be mounted and delegated",
		}, {
			group: "limit", name: "pids", timeout: 3 * time.Second,
			script: guard + "for i in $(seq 1 200); do sleep 30 & done 2>&1; wait",
			judge:  says("Resource temporarily unavailable", fmt.Sprintf("no more than %d processes could be started", probePIDs)),
			hint:   "the pids cgroup controller must be mounted and delegated",
		}, {
			group: "limit", name: "cpu",
			script: guard + "for i in 1 2 3; do (end=$((SECONDS+3)); while [ $SECONDS -lt $end ]; do :; done) & done; wait",
			judge:  judgeCPU,
			hint:   "the cpu cgroup controller must be mounted and delegated",
		}, {
			group: "limit", name: "tmp",
			script: guard + "for d in /tmp /dev/shm \"$HOME\"; do for i in $(seq 1 64); do " +
				"head -c 900K /dev/zero > $d/fill$i 2>/dev/null || { full=\"$full $d\"; break; }; done; rm -f $d/fill*; done; " +
				"[ \"$full\" = \" /tmp /dev/shm $HOME\" ] && echo \"HOLDS$full are bounded\" || echo \"bounded:$full\"",
			judge: holds,
		}, {
			group: "limit", name: "open_files",
			script: guard + "for i in $(seq 1 200); do exec {fd}</dev/null || break; done 2>&1; echo; [ \"$i\" -lt 200 ] && echo \"HOLDS $(ulimit -n) files of a process\"",
			judge:  judgeOpenFiles,
		}, {
			group: "limit", name: "file_size",
			script: guard + "cd /workspace; head -c 4M /dev/zero > big; size=$(stat -c %s big); rm -f big; [ \"$size\" -le 1048576 ] && echo \"HOLDS a file grew to $size bytes\"",
			judge:  holds,
		}, {
			group: "limit", name: "output",
			script: guard + "head -c 8M /dev/zero | tr '\\0' x",
			judge:  reason("output_limit", "a program that printed more was killed"),
		}, {
			group: "limit", name: "wall", timeout: 500 * time.Millisecond,
			script: guard + "trap '' TERM; sleep 60",
			judge:  reason("timeout", "a program that ran longer was killed"),
		},
	}
}

// judgeCPU compares the time that was used with the time that passed. The bound
// is loose: quotas are kept per period, and the machine may be busy.
func judgeCPU(c *client.Call) (bool, string) {
	if c.Usage.DurationMillis <= 0 || c.Usage.CPUMillis <= 0 {
		return false, "no usage was reported"
	}
	cpus := float64(c.Usage.CPUMillis) / float64(c.Usage.DurationMillis)
	return cpus <= probeCPUs*1.4, fmt.Sprintf("three busy loops got %.2f CPUs of %.1f", cpus, probeCPUs)
}

// judgeOpenFiles takes both what the shell says and that it could do no more.
func judgeOpenFiles(c *client.Call) (bool, string) {
	if ok, detail := holds(c); ok {
		return true, detail
	}
	return says("Too many open files", fmt.Sprintf("no more than %d files of a process", probeOpenFiles))(c)
}

// defenceProbes try what a hostile program would try first.
func defenceProbes() []probe {
	return []probe{
		{
			group: "defence", name: "identity",
			// A session with a kernel of its own sees that kernel's ids alone.
			script: guard + `case $(uname -r) in *-gvisor) [ "$(id -u):$(id -g):$(id -G)" = 1000:1000:1000 ] && echo "HOLDS uid 1000 in no other group, of a kernel of its own"; exit;; esac; ` +
				`while read -r in out n; do [ "$out" != 0 ] && [ "$out" != "$in" ] || bad=1; first=${first:-$out}; done < /proc/self/uid_map; ` +
				`[ "$(id -u):$(id -g):$(id -G)" = 1000:1000:1000 ] && [ -n "$first" ] && [ -z "$bad" ] && echo "HOLDS uid 1000 in no other group, host uids from $first"`,
			judge: holds,
		}, {
			group: "defence", name: "capabilities",
			script: guard + `awk '/^Cap(Inh|Prm|Eff|Amb):/ && $2 !~ /^0+$/ {bad=1} END {if (!bad) print "HOLDS none"}' /proc/self/status`,
			judge:  holds,
		}, {
			group: "defence", name: "no_new_privs",
			script: guard + `grep -q '^NoNewPrivs:[[:space:]]*1' /proc/self/status && echo HOLDS set`,
			judge:  holds,
		}, {
			group: "defence", name: "seccomp",
			script: guard + `grep -q '^Seccomp:[[:space:]]*2' /proc/self/status && ! unshare -U true 2>/dev/null && echo "HOLDS $(awk '/^Seccomp_filters:/{print $2}' /proc/self/status) filters; no nested user namespace"`,
			judge:  holds,
		}, {
			group: "defence", name: "network",
			script: guard + `[ "$(awk -F: 'NR>2{gsub(/ /,"",$1); print $1}' /proc/net/dev)" = lo ] && ! (exec 3<>/dev/udp/192.0.2.1/53) 2>/dev/null && echo "HOLDS only lo, no route"`,
			judge:  holds,
		}, {
			group: "defence", name: "masked paths",
			// A masked file is /dev/null: it can be written to, without effect.
			script: guard + `for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches; do (echo x >> $f) 2>/dev/null && echo "$f was written"; done; ` +
				`for f in /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug /proc/latency_stats; do [ -n "$(head -c 1 $f 2>/dev/null | tr -d '\0')" ] && echo "$f was read"; done; ` +
				`for d in /sys/firmware /proc/scsi; do [ -n "$(ls -A $d 2>/dev/null)" ] && echo "$d was listed"; done; echo done`,
			judge: func(c *client.Call) (bool, string) {
				return strings.TrimSpace(c.Output) == "done", "files of the kernel cannot be read or written"
			},
		}, {
			group: "defence", name: "read-only root",
			script: guard + `awk '$5=="/" {print $6}' /proc/self/mountinfo | grep -qE '^ro(,|$)' && ! touch /usr/probe /etc/probe 2>/dev/null && echo "HOLDS the root is mounted read-only"`,
			judge:  holds,
		}, {
			group: "defence", name: "setuid",
			script: guard + `cp "$(command -v id)" /workspace/id && chmod u+s /workspace/id 2>/dev/null && how="give no rights" || how="cannot be made"; ` +
				`uid=$(/workspace/id -u); rm -f /workspace/id; [ "$uid" = 1000 ] && grep -q '^NoNewPrivs:[[:space:]]*1' /proc/self/status && echo "HOLDS setuid files $how"`,
			judge: holds,
		}, {
			group: "defence", name: "agent",
			script: guard + `for s in KILL TERM STOP INT; do kill -$s 1 2>/dev/null && echo "signal $s was sent"; done; ` +
				`head -c 1 /proc/1/environ >/dev/null 2>&1 && echo "environment was read"; head -c 1 /proc/1/mem >/dev/null 2>&1 && echo "memory was read"; ` +
				`ls /proc/1/fd >/dev/null 2>&1 && echo "descriptors were listed"; echo done`,
			judge: func(c *client.Call) (bool, string) {
				return strings.TrimSpace(c.Output) == "done", "tools cannot signal it or read its memory, environment or descriptors"
			},
		}, {
			group: "defence", name: "processes",
			script: guard + `n=$(ls -d /proc/[0-9]* | wc -l); [ "$n" -lt 20 ] && echo "HOLDS $n processes can be seen, none of the host's"`,
			judge:  holds,
		}, {
			group: "defence", name: "saved outputs",
			script: guard + `! touch ` + sandbox.OutputDir + `/probe 2>/dev/null && [ -d ` + sandbox.OutputDir + ` ] && echo "HOLDS they can be read and not written"`,
			judge:  holds,
		}, {
			group: "worktree", name: "empty",
			script: guard + `cd /workspace && echo x > f && [ "$(cat f)" = x ] && rm f && echo "HOLDS files can be made"`,
			judge:  holds,
		},
	}
}

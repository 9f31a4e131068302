package cgroup

import (
	"fmt"
	"strings"

	"github.com/toold/toold/client"
)

// Checks are what doctor prints about cgroups and the swap that they count.
func (t *Tree) Checks() []client.Check { return []client.Check{t.layout(), t.swap()} }

func (t *Tree) layout() client.Check {
	var parts, missing []string
	for _, name := range limited {
		switch mount, v1 := t.v1[name]; {
		case v1:
			parts = append(parts, name+" at "+mount)
		case t.v2has[name]:
			parts = append(parts, name+" on v2")
		default:
			missing = append(missing, name)
		}
	}
	check := client.Check{
		Group: "host", Name: "cgroups", Status: client.CheckOK,
		Detail: fmt.Sprintf("%s; %s; processes are killed by cgroup.kill", t.mode(), strings.Join(parts, ", ")),
	}
	if len(missing) > 0 {
		check.Status = client.CheckWarn
		check.Detail += "; missing: " + strings.Join(missing, ", ")
		check.Hint = "limits that need these controllers are refused; boot with them, or delegate them to this service"
	}
	return check
}

func (t *Tree) swap() client.Check {
	check := client.Check{Group: "host", Name: "swap", Status: client.CheckOK, Detail: "there is none"}
	switch {
	case !hasSwap():
	case t.countsSwap():
		check.Detail = "counted as memory"
	default:
		check.Status, check.Detail = client.CheckWarn, "not accounted: tools can use swap beyond limits.memory"
		check.Hint = "boot with swapaccount=1"
	}
	return check
}

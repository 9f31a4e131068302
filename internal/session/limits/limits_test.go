package limits

import (
	"errors"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

func TestDefaultsAndMaxima(t *testing.T) {
	none := Config{Default: client.Limits{PIDs: 100, Calls: 4}, Most: client.Limits{PIDs: 400, Calls: 8}}
	ten := none
	ten.TenantDefault, ten.TenantMost = client.Limits{PIDs: 50}, client.Limits{PIDs: 200, Calls: 2}
	for _, tt := range []struct {
		name        string
		from        Config
		asked, want client.Limits
		says        string
	}{
		{"nothing asked", none, client.Limits{}, client.Limits{PIDs: 100, Calls: 4}, ""},
		{"above the default", none, client.Limits{PIDs: 400}, client.Limits{PIDs: 400, Calls: 4}, ""},
		{"above the maximum", none, client.Limits{PIDs: 401}, client.Limits{}, "is 401; the most that a session may ask for is 400"},
		{"of a tenant", ten, client.Limits{}, client.Limits{PIDs: 50, Calls: 2}, ""},
		{"above the tenant's default", ten, client.Limits{PIDs: 200}, client.Limits{PIDs: 200, Calls: 2}, ""},
		{"above the tenant's maximum", ten, client.Limits{PIDs: 201}, client.Limits{}, "is 201; the most that a session may ask for is 200"},
		{"no way around it", ten, client.Limits{Calls: 3}, client.Limits{}, "limits.max.calls of the tenant"},
	} {
		l := tt.asked
		_, err := Fill(&l, tt.from)
		if tt.says != "" {
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Hint == "" || !strings.Contains(e.Err.Error()+e.Hint, tt.says) {
				t.Errorf("%s: %v, want %q and a next step", tt.name, err, tt.says)
			}
			continue
		}
		if err != nil || l.PIDs != tt.want.PIDs || l.Calls != tt.want.Calls {
			t.Errorf("%s: %+v, %v", tt.name, l, err)
		}
	}
}

// TestSizesHaveUnits: a size that is too small to be meant is refused, whichever it is, with what to write.
func TestSizesHaveUnits(t *testing.T) {
	for name, l := range map[string]client.Limits{
		"memory": {Memory: 512}, "tmp": {Tmp: 1}, "file_size": {FileSize: 1024}, "disk": {Disk: leastSize - 1}, "output": {Output: 8},
	} {
		_, err := Fill(&l, Config{Default: client.Limits{Memory: 64 << 20, Tmp: 8 << 20}, StateDir: t.TempDir()})
		if e, ok := errors.AsType[*fault.Error](err); !ok || !strings.Contains(e.Err.Error(), "limits."+name+" is ") || !strings.Contains(e.Hint, "MiB, and no less than 64KiB") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostIsTheLastMaximum: what the host does not have is refused before anything
// is made.
func TestHostIsTheLastMaximum(t *testing.T) {
	for name, l := range map[string]client.Limits{
		"cpus": {CPUs: 1e6}, "memory": {Memory: 1 << 60}, "pids": {PIDs: 1 << 40}, "open_files": {OpenFiles: 1 << 40}, "disk": {Disk: 1 << 60},
	} {
		_, err := Fill(&l, Config{Default: client.Limits{Memory: 64 << 20, Tmp: 8 << 20}, StateDir: t.TempDir()})
		if e, ok := errors.AsType[*fault.Error](err); !ok || !strings.Contains(e.Err.Error(), "limits."+name+" is ") || !strings.Contains(e.Err.Error(), "this host has") || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where nothing is set, limits.disk bounds /tmp, and no maximum becomes its size.
func TestTmpStaysUnset(t *testing.T) {
	var l client.Limits
	if _, err := Fill(&l, Config{Default: client.Limits{Memory: 1 << 30}, Most: client.Limits{Tmp: 2 << 30}, TenantMost: client.Limits{Tmp: 1 << 30}}); err != nil || l.Tmp != 0 {
		t.Errorf("tmp %v, %v", l.Tmp, err)
	}
	l.Tmp = 3 << 30
	if _, err := Fill(&l, Config{Most: client.Limits{Tmp: 2 << 30}}); err == nil {
		t.Error("more than limits.max.tmp is given")
	}
}

func TestLessMemoryHasLessTmp(t *testing.T) {
	all := client.Limits{Memory: 2 << 30, Tmp: 256 << 20}
	for _, tt := range []struct {
		name        string
		memory, tmp client.Size
		want        client.Size
	}{
		{"neither", 0, 0, 256 << 20},
		{"less memory", 128 << 20, 0, 16 << 20},
		{"very little", 4 << 20, 0, 1 << 20},
		{"both", 128 << 20, 8 << 20, 8 << 20},
		{"more memory", 1 << 40, 0, 256 << 20},
	} {
		l := client.Limits{Memory: tt.memory, Tmp: tt.tmp}
		if _, err := Fill(&l, Config{Default: all}); err != nil && tt.memory < 1<<40 || l.Tmp != tt.want && err == nil {
			t.Errorf("%s: tmp %v, %v; want %v", tt.name, l.Tmp, err, tt.want)
		}
	}
	var l client.Limits
	if _, err := Fill(&l, Config{Default: all, TenantMost: client.Limits{Memory: 512 << 20}}); err != nil || l.Memory != 512<<20 || l.Tmp != 64<<20 {
		t.Errorf("a tenant's maximum: memory %v, tmp %v, %v; want 512 MiB and 64 MiB", l.Memory, l.Tmp, err)
	}
}

// TestHostGives: the default of limits.disk is no more than the file system has, which is said;
// and what another session was given gives way where a request would be refused.
func TestHostGives(t *testing.T) {
	c := Config{Default: client.Limits{Disk: 1 << 60}, Most: client.Limits{PIDs: 200}, StateDir: t.TempDir()}
	l := client.Limits{}
	notes, err := Fill(&l, c)
	if err != nil || l.Disk <= 0 || l.Disk >= 1<<60 || len(notes) != 1 || !strings.Contains(notes[0], "the size of the file system of the state directory") {
		t.Errorf("a default: %v, %q, %v", l.Disk, notes, err)
	}
	fits := l.Disk
	l = client.Limits{Disk: fits}
	if notes, err := Fill(&l, c); err != nil || len(notes) != 0 || l.Disk != fits {
		t.Errorf("what fits: %v, %q, %v", l.Disk, notes, err)
	}
	c.Give = true
	l = client.Limits{Disk: 1 << 60, PIDs: 201, Memory: 1 << 60, CPUs: 1e6}
	notes, err = Fill(&l, c)
	if err != nil || l.Disk != fits || l.PIDs != 200 || l.Memory >= 1<<60 || l.CPUs >= 1e6 || len(notes) != 4 {
		t.Errorf("of another session: %+v, %q, %v", l, notes, err)
	}
}

// TestAtMost: it lowers limits, wherever they come from, and raises none.
func TestAtMost(t *testing.T) {
	c := Config{Default: client.Limits{PIDs: 100, Calls: 4, Memory: 1 << 30}, Most: client.Limits{PIDs: 400}}
	c.AtMost = client.Limits{PIDs: 50, Calls: 1000, OpenFiles: 64, Memory: 1 << 20}
	for _, asked := range []client.Limits{{}, {PIDs: 400, Memory: 2 << 20}} {
		l := asked
		if _, err := Fill(&l, c); err != nil || l.PIDs != 50 || l.Calls != 4 || l.OpenFiles != 64 || l.Memory != 1<<20 {
			t.Errorf("%+v: %+v, %v", asked, l, err)
		}
	}
	for _, tt := range []struct{ low, tmp, disk client.Size }{ // a /tmp that limits.disk bounds
		{1 << 50, 0, 4 << 30}, {3 << 30, 0, 4 << 30}, {1 << 30, 1 << 30, 3 << 30},
	} {
		l := client.Limits{}
		if _, err := Fill(&l, Config{Default: client.Limits{Disk: 4 << 30}, AtMost: client.Limits{Tmp: tt.low}}); err != nil || l.Tmp != tt.tmp || l.Disk != tt.disk {
			t.Errorf("a /tmp of %v at most: %+v, %v", tt.low, l, err)
		}
	}
	for _, bad := range []client.Limits{{PIDs: -1}, {Memory: 1}} {
		c.AtMost = bad
		if _, err := Fill(&client.Limits{}, c); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

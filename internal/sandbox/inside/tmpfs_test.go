package inside

import (
	"errors"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

func TestTmpfsSizes(t *testing.T) {
	for _, tt := range []struct {
		memory, tmp client.Size
		mode        client.WorktreeMode
		ok          bool
	}{
		{2 << 30, 256 << 20, client.WorktreeBind, true},
		{2 << 30, 256 << 20, client.WorktreeEmpty, true},
		{2 << 30, 1 << 30, client.WorktreeBind, false},
		{2 << 30, 0, client.WorktreeEmpty, true},
		{64 << 20, 0, client.WorktreeEmpty, true},
		{0, 0, client.WorktreeEmpty, true},
		{0, 10 << 30, client.WorktreeBind, true},
	} {
		sizes, _, err := SizeTmpfs(client.Limits{Memory: tt.memory, Tmp: tt.tmp}, &sandbox.Worktree{Mode: tt.mode}, true)
		sum := sizes.Sum()
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("memory %v, tmp %v: %v", tt.memory, tt.tmp, err)
		}
		if err == nil && tt.memory > 0 && sum > tt.memory/4*3 {
			t.Errorf("memory %v, tmp %v: %v of memory file systems", tt.memory, tt.tmp, sum)
		}
		if err == nil && sum == 0 {
			t.Errorf("memory %v, tmp %v: no bound", tt.memory, tt.tmp)
		}
	}
}

package call

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/toold/toold/internal/tool/run"
)

// formatted notes what a formatter has made of a file. Where the whole is not known, the
// diff is that of the edit alone, and formatted_after_diff names the file.
func (c *Call) formatted(file, by string, whole *run.FormattedEdit) {
	meta := c.edit
	if meta["diff"] == nil {
		return
	}
	if whole == nil {
		late, _ := meta["formatted_after_diff"].(map[string]any)
		late = maps.Clone(late)
		if late == nil {
			late = make(map[string]any)
		}
		late[file] = by
		meta["formatted_after_diff"] = late
		return
	}
	meta["diff"] = whole.Diff
	count(meta, whole)
	if meta["path"] == file {
		meta["bytes"] = whole.Bytes
	}
	files, _ := meta["files"].([]any)
	for i := range files {
		if f, ok := files[i].(map[string]any); ok && f["path"] == file {
			files[i] = maps.Clone(f)
			count(files[i].(map[string]any), whole)
		}
	}
}

// count corrects the numbers of lines.
func count(of map[string]any, whole *run.FormattedEdit) {
	for key, more := range map[string]int{"lines_added": whole.Added, "lines_removed": whole.Removed} {
		// Its type is that of the protocol or of JSON.
		if n, err := strconv.Atoi(fmt.Sprint(of[key])); err == nil {
			of[key] = max(0, n+more)
		}
	}
}

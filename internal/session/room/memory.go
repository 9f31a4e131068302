package room

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory looks at the host's: Free is what programs can have without another giving any back, or
// swapping (MemAvailable).
func Memory() (Volume, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return Volume{}, fmt.Errorf("look at the host's memory: %w", err)
	}
	defer f.Close()
	var v Volume
	for lines := bufio.NewScanner(f); lines.Scan() && (v.Free == 0 || v.Size == 0); {
		f := strings.Fields(lines.Text())
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			v.Size = kib << 10
		case "MemAvailable:":
			v.Free = kib << 10
		}
	}
	if v.Size <= 0 {
		return Volume{}, fmt.Errorf("look at the host's memory: /proc/meminfo does not say how much there is")
	}
	return v, nil
}

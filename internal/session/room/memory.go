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

// Sockets is what TCP and UDP sockets of all network namespaces of the host keep, in bytes; 0 where the
// kernel does not say.
func Sockets() (sum int64) {
	b, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		_, number, ok := strings.Cut(strings.TrimSpace(line), " mem ")
		if n, err := strconv.ParseInt(number, 10, 64); ok && err == nil {
			sum += n * int64(os.Getpagesize())
		}
	}
	return sum
}

// FileLocks is what the kernel keeps for locks of files, of all programs of the host, in bytes, and whatever
// else it has records of that size for; 0 where it does not say.
func FileLocks() int64 {
	const dir = "/sys/kernel/slab/file_lock_cache/"
	number := func(name string) (n int64) {
		b, err := os.ReadFile(dir + name)
		if err == nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ") // then by node
			n, _ = strconv.ParseInt(first, 10, 64)
		}
		return n
	}
	return number("objects") * number("slab_size")
}

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

// Gauge is a number of the whole host that the kernel says. Its file stays open: to open it takes ten
// times as long as to read it, and it is read hundreds of times a second.
type Gauge struct {
	file *os.File // nil: this kernel does not say it
	of   func(text string) int64
}

// Sockets is what TCP and UDP sockets of all network namespaces keep, in bytes.
func Sockets() Gauge {
	return open("/proc/net/sockstat", func(text string) (sum int64) {
		for line := range strings.Lines(text) {
			if _, number, ok := strings.Cut(line, " mem "); ok {
				sum += first(number) * int64(os.Getpagesize())
			}
		}
		return sum
	})
}

// FileLocks is what the kernel keeps for locks of files, of all programs, in bytes, and whatever else it has
// records of that size for; there may be room for more in it.
func FileLocks() Gauge {
	const dir = "/sys/kernel/slab/file_lock_cache/"
	b, _ := os.ReadFile(dir + "slab_size")
	each := first(string(b))
	// The other one, "objects", is counted anew each time.
	return open(dir+"total_objects", func(text string) int64 { return first(text) * each })
}

func open(path string, of func(string) int64) Gauge {
	f, _ := os.Open(path)
	return Gauge{file: f, of: of}
}

// first is the number that a text begins with; 0 where there is none.
func first(text string) int64 {
	var n int64
	_, _ = fmt.Sscan(text, &n)
	return n
}

// Now is the number; 0 where the kernel does not say it.
func (g Gauge) Now() int64 {
	if g.file == nil {
		return 0
	}
	var text [4096]byte
	n, _ := g.file.ReadAt(text[:], 0) // which is shorter, so that there is always io.EOF
	return g.of(string(text[:n]))
}

// Close closes the file.
func (g Gauge) Close() {
	if g.file != nil {
		g.file.Close()
	}
}

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Space says how full the disks are that hold the daemon's files, and what takes how
// much of them, all in bytes.
type Space struct {
	// State and Audit are the file systems of the state directory and of the audit
	// log, which may be one. One that cannot be looked at has nothing free.
	State, Audit Disk
	// MinFree must stay free on State.
	MinFree int64
	// Floor must stay free on State for sessions to write and begin; Promised are the sizes
	// of their disks together, and Unwritten what was written to those and has no place on
	// State yet. Stopped counts sessions whose calls were stopped for Floor.
	Floor, Promised, Unwritten, Stopped int64
	Memory                              Memory
	// What the daemon keeps: the database of records, its journal, the files of the
	// audit log, the outputs of all sessions, the images, the changes of sessions in
	// worktrees of mode overlay.
	Database, Journal, AuditLog, Outputs, Images, Worktrees int64
	// Caches is what is kept of caches, and CacheLayers what live sessions have added.
	Caches, CacheLayers int64
}

// Memory is that of the host: what is Available, what of it must stay (Floor), in bytes, and how many
// sessions had calls Stopped for it.
type Memory struct{ Available, Floor, Stopped int64 }

// Disk is a file system.
type Disk struct{ Free, Size int64 }

var (
	diskFree = prometheus.NewDesc("toold_disk_free_bytes",
		"Free bytes of the file systems of the state directory and of the audit log; 0 if one cannot be looked at.", []string{"dir"}, nil)
	diskSize = prometheus.NewDesc("toold_disk_size_bytes",
		"Size of the file systems of the state directory and of the audit log.", []string{"dir"}, nil)
	diskMinFree = prometheus.NewDesc("toold_disk_min_free_bytes",
		"What must stay free for the state directory: with less, outputs are not kept and large inputs are refused.", nil, nil)
	diskBytes = prometheus.NewDesc("toold_disk_bytes",
		"Room for the disks of sessions by kind: floor (must stay free for them to write), promised (their sizes), unwritten (on its way to the host's disk).", []string{"kind"}, nil)
	diskStopped = prometheus.NewDesc("toold_disk_stopped_sessions_total",
		"Sessions whose calls were stopped because the host's disk was nearly full.", nil, nil)
	memoryBytes = prometheus.NewDesc("toold_memory_bytes",
		"Memory of the host by kind: available, floor (must stay available for calls to run and sessions to begin).", []string{"kind"}, nil)
	memoryStopped = prometheus.NewDesc("toold_memory_stopped_sessions_total",
		"Sessions whose calls were stopped because the host's memory was nearly full, or their sockets kept too much of it.", nil, nil)
	kept = prometheus.NewDesc("toold_kept_bytes",
		"Sizes of the daemon's files by kind: database, journal, audit, outputs, images, worktrees. They may be a minute old.", []string{"kind"}, nil)
)

var cacheBytes = prometheus.NewDesc("toold_cache_bytes",
	"Sizes of caches by kind: kept (what later sessions begin with), layers (what live sessions have added).", []string{"kind"}, nil)

// spaceCollector asks at each scrape how much room there is.
type spaceCollector struct{ ask func() Space }

// Describe implements prometheus.Collector.
func (c spaceCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{diskFree, diskSize, diskMinFree, diskBytes, diskStopped, memoryBytes, memoryStopped, kept, cacheBytes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c spaceCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.ask()
	gauge := func(desc *prometheus.Desc, bytes int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(bytes), labels...)
	}
	gauge(diskFree, s.State.Free, "state")
	gauge(diskSize, s.State.Size, "state")
	gauge(diskFree, s.Audit.Free, "audit")
	gauge(diskSize, s.Audit.Size, "audit")
	gauge(diskMinFree, s.MinFree)
	gauge(diskBytes, s.Floor, "floor")
	gauge(diskBytes, s.Promised, "promised")
	gauge(diskBytes, s.Unwritten, "unwritten")
	ch <- prometheus.MustNewConstMetric(diskStopped, prometheus.CounterValue, float64(s.Stopped))
	gauge(memoryBytes, s.Memory.Available, "available")
	gauge(memoryBytes, s.Memory.Floor, "floor")
	ch <- prometheus.MustNewConstMetric(memoryStopped, prometheus.CounterValue, float64(s.Memory.Stopped))
	gauge(kept, s.Database, "database")
	gauge(kept, s.Journal, "journal")
	gauge(kept, s.AuditLog, "audit")
	gauge(kept, s.Outputs, "outputs")
	gauge(kept, s.Images, "images")
	gauge(kept, s.Worktrees, "worktrees")
	gauge(cacheBytes, s.Caches, "kept")
	gauge(cacheBytes, s.CacheLayers, "layers")
}

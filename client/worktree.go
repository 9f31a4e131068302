package client

import "time"

// Change is one path of a worktree of mode "overlay" that differs from what it is
// compared with: what the session began with, or a checkpoint.
type Change struct {
	// Path is relative to the worktree. What of it is no UTF-8 is replaced; Bytes has
	// all of them then.
	Path  string `json:"path"`
	Bytes []byte `json:"bytes,omitempty"`
	// Status is what has become of it.
	Status ChangeStatus `json:"status"`
	// Kind and OldKind are what it is and was: file, dir, link, or other for what is
	// neither and has no content here. Empty where there is none.
	Kind    string `json:"kind,omitempty"`
	OldKind string `json:"old_kind,omitempty"`
	// Mode and OldMode are the permissions of a file or directory, such as "0644".
	Mode    string `json:"mode,omitempty"`
	OldMode string `json:"old_mode,omitempty"`
	// Size is the bytes of a file, OldSize what they were.
	Size    int64 `json:"size,omitempty"`
	OldSize int64 `json:"old_size,omitempty"`
	// Added and Removed count lines; both are 0 for a binary file.
	Added   int  `json:"added,omitempty"`
	Removed int  `json:"removed,omitempty"`
	Binary  bool `json:"binary,omitempty"`
	// Sensitive: programs of a host run or obey the file on sight. Build: its commands
	// run when somebody builds.
	Sensitive bool `json:"sensitive,omitempty"`
	Build     bool `json:"build,omitempty"`
	// Unreadable says why its content could not be compared.
	Unreadable string `json:"unreadable,omitempty"`
	// SourceChanged: the source has something else there by now than the session began with.
	// The change is told against what it began with.
	SourceChanged bool `json:"source_changed,omitempty"`
	// Stale: so it has, but what the session began with is not known. The change is told
	// against the source as it is: to do that takes somebody's work back. A patch leaves it
	// out.
	Stale bool `json:"stale,omitempty"`
}

// ChangeStatus says what has become of a path.
type ChangeStatus string

// The ways in which a path differs.
const (
	ChangeAdded    ChangeStatus = "added"
	ChangeModified ChangeStatus = "modified" // of a file the content, of all but links the mode, of a link where it leads
	ChangeDeleted  ChangeStatus = "deleted"
	ChangeType     ChangeStatus = "type" // it is of another kind now
)

// Changes are what differs, in the order of the paths' bytes.
type Changes struct {
	Items []Change `json:"items"`
	// Next is where to go on, as `after` of the next request; empty at the end.
	Next string `json:"next,omitempty"`
	// Files, Added and Removed count all changes, also those of other pages.
	Files   int `json:"files"`
	Added   int `json:"added"`
	Removed int `json:"removed"`
	// Unreadable counts those whose content could not be compared.
	Unreadable int `json:"unreadable,omitempty"`
	// Excluded and Ignored count the changes that DiffQuery.Exclude and NoIgnored leave out:
	// they are in no other count.
	Excluded int `json:"excluded,omitempty"`
	Ignored  int `json:"ignored,omitempty"`
	// SourceChanged and Stale count those that are.
	SourceChanged int `json:"source_changed,omitempty"`
	Stale         int `json:"stale,omitempty"`
	// Incomplete are moved directories that lack files which the session did not change, because the
	// source does not have them any more: of the whole tree, on each page.
	Incomplete []Incomplete `json:"incomplete,omitempty"`
	// SourceAstray says what is at the path of the source, where that is not the directory that the
	// session began with. The changes are told against what is known of that one.
	SourceAstray string `json:"source_astray,omitempty"`
	// Earlier is as in Applied.
	Earlier string `json:"earlier,omitempty"`
}

// Incomplete is a directory that the session has moved, and whose files the source has no more where
// they were. Paths with control characters or bytes that are no UTF-8 are quoted.
type Incomplete struct {
	Path string `json:"path"`
	// From is where it was in the source.
	From string `json:"from"`
	// Why says what has become of that, such as "which is not there any more".
	Why string `json:"why"`
}

// SourceSeen says that a directory of the host that a session has is not at its path any more, or is
// there again. Sessions go on with the directory itself, wherever it is.
type SourceSeen struct {
	Path   string `json:"path"`
	Target string `json:"target"` // where the session has it
	// Is says what is at the path instead, or that something is mounted in the directory, which the
	// session does not see; empty where the directory is there again.
	Is string `json:"is,omitempty"`
}

// DiffQuery says which differences are wanted. Paths are exact, relative to the
// worktree, and stand for all that is below them; none is everything.
type DiffQuery struct {
	Paths []string
	// Exclude are patterns as in .gitignore of what is left out, at most 1000; what was in a
	// directory that a file has taken the place of comes with that. NoIgnored leaves out what
	// the .gitignore files of the worktree ignore, as the session has them; of what it began
	// with also as they were then. What is left out is counted.
	Exclude   []string
	NoIgnored bool
	// Against is the name or id of a checkpoint; "" is the source.
	Against string
	// After and Limit page through Changes; a patch has no pages. For each page the whole
	// tree is read. Limit is at most 10,000; 0 means 100.
	After string
	Limit int
}

// ApplyRequest asks to write the changes of a session to its source.
type ApplyRequest struct {
	// Paths and Exclude narrow what is written. Paths are as in DiffQuery; Exclude are
	// patterns as in .gitignore.
	Paths   []string `json:"paths,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// DryRun says what would be done, and does nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Force overwrites what has changed in the source since the session began. Merge merges
	// it, file by file: lines that one side alone has changed are taken from that side. It
	// takes what the file was when the session began, which is known where the apply of
	// another session has replaced it. A file that cannot be merged is a conflict that says
	// why.
	Force bool `json:"force,omitempty"`
	Merge bool `json:"merge,omitempty"`
	// IncludeSensitive also writes files that programs of a host run or obey on sight.
	IncludeSensitive bool `json:"include_sensitive,omitempty"`
}

// Applied is what was written to the source, or would be. Paths with control characters
// or bytes that are no UTF-8 are quoted; each list holds the first thousand.
type Applied struct {
	Written []string `json:"written,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Merged  []string `json:"merged,omitempty"` // they are in Written too
	// Sensitive were left out: look at them, then apply with include_sensitive.
	Sensitive []string `json:"sensitive,omitempty"`
	// Build were written: their commands run when somebody builds.
	Build []string `json:"build,omitempty"`
	// Skipped are what cannot be written to a worktree, and SkippedKinds says of each what it
	// is: socket, fifo, device, unreadable (the tools may not read it), too_large (8 GiB),
	// special (one of the first three), source_special (the session has removed it or the
	// directory that it is in, and the source has one of the first three there).
	Skipped      []string          `json:"skipped,omitempty"`
	SkippedKinds map[string]string `json:"skipped_kinds,omitempty"`
	// Overwritten are those of Written and Removed that somebody had changed in the source since
	// the session began: what was there is gone. Only force does that.
	Overwritten []string `json:"overwritten,omitempty"`
	// Kept are what force left in the source, though the session has removed it or the directory
	// that it is in: it came there since the session began. So did what is in directories of these.
	Kept []string `json:"kept,omitempty"`
	// The counts are of all, also of what the lists leave out.
	WrittenCount     int `json:"written_count"`
	RemovedCount     int `json:"removed_count"`
	SensitiveCount   int `json:"sensitive_count,omitempty"`
	SkippedCount     int `json:"skipped_count,omitempty"`
	OverwrittenCount int `json:"overwritten_count,omitempty"`
	KeptCount        int `json:"kept_count,omitempty"`
	// AttributesLeft counts written files and directories that lack extended attributes (user.*)
	// which they have in the session: the file system did not take them, or they are too large.
	AttributesLeft int  `json:"attributes_left,omitempty"`
	DryRun         bool `json:"dry_run,omitempty"`
	// Earlier says what became of an apply before this one, if the daemon ended in the middle of it and
	// nobody was told.
	Earlier string `json:"earlier,omitempty"`
}

// DiscardRequest asks to drop the changes of a session; without paths all of them.
type DiscardRequest struct {
	Paths []string `json:"paths,omitempty"`
}

// Discarded says how many changes there were.
type Discarded struct {
	Count int `json:"count"`
	// Left are still there: files that the session's tools may not write to, or sockets and
	// the like.
	Left int `json:"left,omitempty"`
	// Uncounted says why Count may not be of all, where all changes were dropped; "" = it is.
	Uncounted string `json:"uncounted,omitempty"`
}

// Checkpoint is a state of a worktree to which a session can come back.
type Checkpoint struct {
	ID      string    `json:"id"` // cp_…
	Session string    `json:"session"`
	Name    string    `json:"name,omitempty"`
	Created time.Time `json:"created"`
	// Cause says what it was made for: "request", "call", "message", "restore" or "fork".
	Cause string `json:"cause"`
	// Call and Message are what came after it, for one that was made by itself.
	Call    string `json:"call,omitempty"`
	Message string `json:"message,omitempty"`
	// Bytes is what the files that changed since the checkpoint before it use on the disk.
	Bytes int64 `json:"bytes"`
}

// CheckpointCreate asks for a checkpoint. A name is unique in the session and may be left
// out.
type CheckpointCreate struct {
	Name string `json:"name,omitempty"`
}

// RestoreRequest asks for the files as they were: at a checkpoint, by its name or id, or
// before the last Undo messages (or calls) that had a checkpoint of their own. Exactly
// one of the two is given.
type RestoreRequest struct {
	Checkpoint string `json:"checkpoint,omitempty"`
	Undo       int    `json:"undo,omitempty"`
}

// Restored says what a session came back to, and how to go back again.
type Restored struct {
	Checkpoint Checkpoint `json:"checkpoint"`
	// Before is the state that was left.
	Before Checkpoint `json:"before"`
	// Remade: the sandbox was made anew for it, with nothing in its home and /tmp.
	Remade bool `json:"remade,omitempty"`
	// TasksKept: the list of tasks is the one from before, since the record of the call that
	// wrote the other is gone.
	TasksKept bool `json:"tasks_kept,omitempty"`
}

// ForkRequest asks for a second session that begins where this one is, or was at a
// checkpoint. It has the same rules and limits; Permission may narrow them.
type ForkRequest struct {
	At         string            `json:"at,omitempty"`
	Name       string            `json:"name,omitempty"`
	Permission []RuleOf          `json:"permission,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	TTL        Duration          `json:"ttl,omitempty"`
	Env        map[string]string `json:"env,omitempty"` // the values of the first one's are not known any more
	Token      bool              `json:"token,omitempty"`
}

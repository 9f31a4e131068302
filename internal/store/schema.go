package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
)

// applicationID marks the file as ours ("tool" in ASCII).
const applicationID = 0x746f6f6c

// migrations bring a database from version i to i+1. Entries are never changed
// once released; a new version is a new entry.
var migrations = []string{
	`CREATE TABLE sessions (
		id         TEXT PRIMARY KEY,
		tenant     TEXT NOT NULL,
		name       TEXT NOT NULL,
		state      TEXT NOT NULL,
		live       INTEGER NOT NULL,  -- 1 until ended or lost
		created    INTEGER NOT NULL,
		ended      INTEGER NOT NULL,
		token_hash BLOB,
		body       BLOB NOT NULL      -- JSON of Session
	) WITHOUT ROWID;
	CREATE UNIQUE INDEX sessions_name ON sessions (tenant, name) WHERE live = 1 AND name <> '';
	CREATE INDEX sessions_live ON sessions (id) WHERE live = 1;

	CREATE TABLE calls (
		id        TEXT PRIMARY KEY,
		session   TEXT NOT NULL,
		tenant    TEXT NOT NULL,
		key       TEXT NOT NULL,
		hash      BLOB NOT NULL,      -- SHA-256 of what was asked, canonical
		tool      TEXT NOT NULL,
		status    TEXT NOT NULL,
		queued    INTEGER NOT NULL,
		started   INTEGER NOT NULL,
		ended     INTEGER NOT NULL,
		input     BLOB NOT NULL,
		origin    BLOB,               -- JSON of message_id, agent, model, extra
		result    BLOB,               -- JSON, once it is finished
		out_file  INTEGER NOT NULL DEFAULT 0,
		out_total INTEGER NOT NULL DEFAULT 0,
		out_inline INTEGER NOT NULL DEFAULT 0
	) WITHOUT ROWID;
	CREATE INDEX calls_session ON calls (session, id);
	CREATE UNIQUE INDEX calls_key ON calls (session, key) WHERE key <> '';
	CREATE INDEX calls_open ON calls (session) WHERE status IN ('pending', 'running');

	CREATE TABLE events (
		id      TEXT PRIMARY KEY,
		time    INTEGER NOT NULL,     -- microseconds
		type    TEXT NOT NULL,
		tenant  TEXT NOT NULL,
		session TEXT NOT NULL,
		call    TEXT NOT NULL,
		data    BLOB
	) WITHOUT ROWID;

	CREATE TABLE leases (
		base        INTEGER PRIMARY KEY, -- first host uid of the range
		session     TEXT NOT NULL,
		quarantined INTEGER NOT NULL,    -- 1: something of the session may still live
		reason      TEXT NOT NULL
	);
	CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;`,
	// The journal: an id that says which one belongs to this database, and the
	// number of its last record that is in here. An older toold would not look
	// for what is in the journal.
	`INSERT INTO meta (key, value) VALUES ('` + metaJournal + `', random()), ('` + metaApplied + `', 0)`,
	`CREATE TABLE approvals (
		id       TEXT PRIMARY KEY,
		tenant   TEXT NOT NULL,
		session  TEXT NOT NULL,
		call     TEXT NOT NULL,
		reply    TEXT NOT NULL,     -- '' while it is pending
		answered INTEGER NOT NULL,
		body     BLOB NOT NULL      -- JSON of Approval
	) WITHOUT ROWID;
	CREATE INDEX approvals_call ON approvals (call, id);
	CREATE INDEX approvals_session ON approvals (session, id);
	CREATE INDEX approvals_pending ON approvals (id) WHERE answered = 0;

	CREATE TABLE saved_approvals (
		id      TEXT PRIMARY KEY,
		tenant  TEXT NOT NULL,
		session TEXT NOT NULL,      -- '' unless it is for one session
		expires INTEGER NOT NULL,   -- 0: never
		body    BLOB NOT NULL       -- JSON of client.SavedApproval
	) WITHOUT ROWID;
	CREATE INDEX saved_session ON saved_approvals (session) WHERE session <> '';`,
	// What the records of each tenant take, without reading them. An older toold
	// would not know inputs that are not kept, here or in the journal.
	`CREATE INDEX calls_tenant ON calls (tenant, id, ` + ownBytes + `)`,
	// An older toold would write rows without it.
	`ALTER TABLE sessions ADD COLUMN key TEXT NOT NULL DEFAULT '';
	CREATE UNIQUE INDEX sessions_key ON sessions (tenant, key) WHERE key <> '';`,
	// What each call takes beside its input and result. An older toold would not count it.
	`ALTER TABLE calls ADD COLUMN beside INTEGER NOT NULL DEFAULT ` + strconv.Itoa(besideBytes) + `;
	DROP INDEX calls_tenant;
	CREATE INDEX calls_tenant ON calls (tenant, id, ` + ownBytes + `, beside)`,
	// How the audit log ended, see AuditEnd. An older toold would not know it in the journal.
	`CREATE TABLE audit_ends (
		log   TEXT PRIMARY KEY,
		first INTEGER NOT NULL,
		seq   INTEGER NOT NULL,
		hash  TEXT NOT NULL,
		boot  INTEGER NOT NULL
	) WITHOUT ROWID`,
}

// Format is the number of the form that the state directory has.
var Format = len(migrations)

// releaseNumber is a release of toold as a number that grows with it.
func releaseNumber(release string) (n int64) {
	for part := range strings.SplitSeq(release, ".") {
		v, _ := strconv.ParseInt(part, 10, 64) // a test holds its form
		n = n*1000 + v
	}
	return n
}

// releaseName says which release a number is of.
func releaseName(n int64) string {
	if n <= 0 {
		return "a later toold"
	}
	return fmt.Sprintf("toold %d.%d.%d", n/1e6, n/1e3%1e3, n%1e3)
}

// Keys of the table meta.
const (
	metaLastLease = "last_lease"
	metaJournal   = "journal"
	metaApplied   = "journal_applied"
	metaClean     = "closed"  // 1 while no daemon has the database open and the last one closed it
	metaClock     = "clock/"  // with a field of steady.Mark behind it
	metaStray     = "stray/"  // with the id of a session behind it: see Stray
	metaRelease   = "release" // of toold, that had the database open last: see releaseNumber
)

const sqlSetMeta = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

// migrate brings the database to the newest version, each step in a transaction
// of its own.
func migrate(ctx context.Context, c *sql.Conn) error {
	var app, version, tables int
	for _, q := range []struct {
		sql  string
		into *int
	}{
		{"PRAGMA application_id", &app},
		{"PRAGMA user_version", &version},
		{"SELECT count(*) FROM sqlite_schema", &tables},
	} {
		if err := c.QueryRowContext(ctx, q.sql).Scan(q.into); err != nil {
			return err
		}
	}
	if app != applicationID && (app != 0 || version != 0 || tables != 0) {
		return fmt.Errorf("%w: its application id is %#x", ErrCorrupt, app)
	}
	if version > len(migrations) {
		wrote := int64(0) // of another format: what cannot be read is not known
		_ = c.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", metaRelease).Scan(&wrote)
		return fmt.Errorf("%w: %s wrote it, in format %d; this is toold %s, which knows formats up to %d", ErrNewer, releaseName(wrote), version, client.Release, Format)
	}
	if err := quickCheck(ctx, c, version); err != nil {
		return err
	}
	for v := version; v < len(migrations); v++ {
		step := fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
			migrations[v], applicationID, v+1)
		if _, err := c.ExecContext(ctx, step); err != nil {
			_, _ = c.ExecContext(ctx, "ROLLBACK")
			return fmt.Errorf("bring the database to format %d: %w", v+1, err)
		}
	}
	return nil
}

// quickCheckPages bounds how big a database is checked whole at each start; a bigger one,
// which would delay it by seconds, is checked only if its last daemon has not closed it.
// Else damage there is found when it is read.
const quickCheckPages = 8192

func quickCheck(ctx context.Context, c *sql.Conn, version int) error {
	var pages, closed int
	if err := c.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
		return err
	}
	if pages > quickCheckPages && version > 0 {
		err := c.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", metaClean).Scan(&closed)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if closed == 1 {
			return nil
		}
	}
	var verdict string
	if err := c.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", ErrCorrupt, verdict)
	}
	return nil
}

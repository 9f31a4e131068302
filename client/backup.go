package client

import (
	"context"
	"io"
	"time"
)

// BackupLast is the name of the last file of a backup, which is a BackupInfo: one without it is not
// whole.
const BackupLast = "backup.json"

// BackupInfo says what a backup is.
type BackupInfo struct {
	Version int       `json:"version"` // of its form: 1
	Toold   string    `json:"toold"`   // what made it
	Made    time.Time `json:"made"`
	Files   int       `json:"files"`
}

// Backup reads the state of the daemon as a tar: toold.db, owner, output/ and audit/, as they are in
// the state directory, and BackupLast. It can be made while the daemon works. For admins.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.do(ctx, request{method: "GET", path: "/v1/backup"})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

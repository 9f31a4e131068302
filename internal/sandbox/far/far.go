// Package far serves drivers whose sandboxes are on another host, where no directory of
// this one can be mounted. It copies worktrees there and back, and carries connections to
// agents.
//
// Beside a sandbox's record (package state) it keeps which directory was copied and what
// was in it. So any later daemon can bring the changes back, once. The driver moves the
// archives.
package far

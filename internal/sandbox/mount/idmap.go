package mount

import "os"

// Owner is an id map that shows one owner as one user and group, and everyone
// else as nobody.
type Owner struct{ UID, GID, AsUID, AsGID uint32 }

// UserNamespace makes a user namespace for the map.
func (o Owner) UserNamespace() (*os.File, error) {
	return UserNamespace([]Range{{FS: o.UID, Host: o.AsUID, Size: 1}}, []Range{{FS: o.GID, Host: o.AsGID, Size: 1}})
}

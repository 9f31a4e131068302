package mount

import "os"

// Owner is an id map that shows one owner as one user and group, and everyone
// else as nobody.
type Owner struct{ UID, GID, AsUID, AsGID uint32 }

// UserNamespace makes a user namespace for the map, and for ranges beside it that
// users and groups have alike.
func (o Owner) UserNamespace(beside ...Range) (*os.File, error) {
	users := append([]Range{{FS: o.UID, Host: o.AsUID, Size: 1}}, beside...)
	groups := append([]Range{{FS: o.GID, Host: o.AsGID, Size: 1}}, beside...)
	return UserNamespace(users, groups)
}

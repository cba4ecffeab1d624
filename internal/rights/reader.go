package rights

// Reader is a user, with no group but one, who may read some of what belongs to others.
type Reader struct{ UID, GID uint32 }

// ACL is the extended attribute that has a file's access control list.
const ACL = "system.posix_acl_access"

// May reports whether the file's owner, group and permission bits let r read it. acl is asked, for
// what is not r's own, whether the file has an access control list, which is not looked at: with one
// it is not r's to read. A nil Reader may read everything, as root does.
func (r *Reader) May(uid, gid, mode uint32, acl func() bool) bool {
	return r.has(0o4, uid, gid, mode, acl)
}

// MayList is May of a directory: whether r may list it and open what is in it.
func (r *Reader) MayList(uid, gid, mode uint32, acl func() bool) bool {
	return r.has(0o5, uid, gid, mode, acl)
}

// has reports whether r has all of some rights, as the last three bits of a mode have them.
func (r *Reader) has(want, uid, gid, mode uint32, acl func() bool) bool {
	switch {
	case r == nil || uid == r.UID:
		return true // an owner can give itself any right
	case acl():
		return false
	case gid == r.GID:
		return mode>>3&want == want
	}
	return mode&want == want
}

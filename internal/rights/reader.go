package rights

// Reader is a user, with no group but one, who may read some of what belongs to others.
type Reader struct{ UID, GID uint32 }

// May reports whether the file's owner, group and permission bits let r read it. acl says
// that it has an access control list, which is not looked at: then only what is r's is r's to
// read. A nil Reader may read everything, as root does.
func (r *Reader) May(uid, gid, mode uint32, acl bool) bool {
	return r.has(0o4, uid, gid, mode, acl)
}

// MayList is May of a directory: whether r may list it and open what is in it.
func (r *Reader) MayList(uid, gid, mode uint32, acl bool) bool {
	return r.has(0o5, uid, gid, mode, acl)
}

// has reports whether r has all of some rights, as the last three bits of a mode have them.
func (r *Reader) has(want, uid, gid, mode uint32, acl bool) bool {
	switch {
	case r == nil || uid == r.UID:
		return true // an owner can give itself any right
	case acl:
		return false
	case gid == r.GID:
		return mode>>3&want == want
	}
	return mode&want == want
}

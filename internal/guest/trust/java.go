package trust

import (
	"encoding/pem"
	"path"

	"golang.org/x/sys/unix"
)

// Where Java's stores are: by themselves, below a home of Java, and where the
// homes are.
var (
	stores = []string{
		debianStore,
		"/etc/pki/ca-trust/extracted/java/cacerts", // Fedora, Red Hat
		"/etc/pki/java/cacerts",
		"/var/lib/ca-certificates/java-cacerts", // SUSE
	}
	inHome  = []string{"lib/security/cacerts", "jre/lib/security/cacerts"}
	javas   = []string{"/usr/lib/jvm", "/opt/java", "/usr/java"}
	javaDir = "/etc/ssl/certs/java"
)

// maxHomes bounds how many Javas are looked at in one place.
const maxHomes = 64

// addStores puts the certificate into the stores that there are. Where there
// is a Java and not Debian's store, to which the ones of Debian lead, that is
// made of the bundle: any other Java can be told to use it.
func (in *installer) addStores() {
	homes := in.homes()
	with := func(data []byte) ([]byte, error) { return withAuthority(data, in.cert.Raw) }
	for _, p := range stores {
		in.edit(p, with)
	}
	for _, home := range homes {
		for _, rel := range inHome {
			in.edit(path.Join(home, rel), with)
		}
	}
	if (len(homes) > 0 || in.exists(javaDir)) && !in.there(debianStore) {
		in.try(debianStore, in.write(debianStore, ordinary(in.newStore())))
	}
}

// homes are the directories in which a Java is installed.
func (in *installer) homes() (homes []string) {
	if home := in.o.Env["JAVA_HOME"]; path.IsAbs(home) {
		homes = append(homes, path.Clean(home))
	}
	for _, dir := range javas {
		for _, name := range in.names(dir, maxHomes) {
			homes = append(homes, path.Join(dir, name))
		}
	}
	return homes
}

// newStore is a store of all that the bundle has, and the certificate.
func (in *installer) newStore() []byte {
	var certs [][]byte
	for rest := in.base; len(certs) < maxEntries; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			certs = append(certs, block.Bytes)
		}
	}
	return formatStore(append(trustedAll(certs), trusted(alias, in.cert.Raw)))
}

// there reports whether a name is taken, by a link that leads nowhere too.
func (t *rootFS) there(name string) bool {
	dir, err := t.final(path.Dir(name))
	if err != nil {
		return false
	}
	fd, err := t.dir(dir, false)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstatat(fd, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

package content

import (
	"io"
	"net/http"

	"golang.org/x/sys/unix"
)

// HandlerForTest works in a directory, without a process of its own.
func HandlerForTest(dir string, limit int64) (http.Handler, error) {
	unix.Umask(0)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return handler{root: root{fd}, limit: limit}, err
}

// CleanPathForTest is cleanPath.
func CleanPathForTest(p string) (string, error) { return cleanPath(p) }

// NamedUploadForTest writes a file by the way of file systems that can't do
// without a name.
func NamedUploadForTest(dir, name string, from io.Reader, replace bool) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	u, err := namedUpload(fd)
	if err != nil {
		return err
	}
	defer u.discard()
	if err := u.fill(from, defaults(fileMode), 0); err != nil {
		return err
	}
	return u.publish(name, replace)
}

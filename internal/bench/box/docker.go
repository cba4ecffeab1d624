package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const (
	dockerImage = "carboy-box-bench"
	dockerLabel = "carboy-box-bench=1"
)

// openDocker returns Docker's command line, as LangBot's runtime calls it: a
// container that sleeps for each session, and an exec for each command.
func openDocker(ctx context.Context, _ string) (*subject, error) {
	if out, err := docker(ctx, nil, "version", "--format", "{{.Server.Version}}"); err != nil {
		return nil, fmt.Errorf("%w %s", err, out)
	}
	rootTar, binds, err := dockerRoot()
	if err != nil {
		return nil, err
	}
	if out, err := docker(ctx, rootTar, "import", "-", dockerImage); err != nil {
		return nil, fmt.Errorf("docker import: %w %s", err, out)
	}
	name := func(id string) string { return "langbot-box-" + id }
	return &subject{
		name: "docker run, docker exec", many: true,
		create: func(ctx context.Context, id string) error { return dockerRun(ctx, name(id), binds) },
		exec: func(ctx context.Context, id, text, want string) error {
			if strings.HasPrefix(id, "crowd") && strings.HasSuffix(text, " 0") { // the first command makes the session
				if err := dockerRun(ctx, name(id), binds); err != nil {
					return err
				}
			}
			out, err := docker(ctx, nil, "exec", name(id), "sh", "-lc", "mkdir -p /tmp && cd /tmp && "+text)
			if err == nil && out != want {
				err = fmt.Errorf("%s: %q, want %q", text, out, want)
			}
			return err
		},
		remove: func(ctx context.Context, id string) error {
			_, err := docker(ctx, nil, "rm", "--force", "--volumes", name(id))
			return err
		},
		close: func() error {
			ctx := context.WithoutCancel(ctx)
			ids, err := docker(ctx, nil, "ps", "--all", "--quiet", "--filter", "label="+dockerLabel)
			for _, id := range strings.Fields(ids) {
				_, rm := docker(ctx, nil, "rm", "--force", id)
				err = errors.Join(err, rm)
			}
			_, rmi := docker(ctx, nil, "rmi", "--force", dockerImage)
			return errors.Join(err, rmi)
		},
	}, nil
}

func dockerRun(ctx context.Context, name string, binds []string) error {
	args := append([]string{
		"run", "--detach", "--rm", "--name", name, "--label", dockerLabel, "--network", "none", "--cpus", "1", "--memory", "512m",
		"--pids-limit", "128", "--read-only", "--tmpfs", "/tmp:size=64m",
	}, binds...)
	_, err := docker(ctx, nil, append(args, dockerImage, "sh", "-lc", "while true; do sleep 3600; done")...)
	return err
}

func docker(ctx context.Context, stdin *bytes.Buffer, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("docker %s: %w: %.300s", args[0], err, errs.String())
	}
	return out.String(), nil
}

// dockerRoot returns an image of directories and links alone, and the flags
// that show the machine's own programs in them: what carboy's sessions have.
func dockerRoot() (image *bytes.Buffer, binds []string, err error) {
	image = &bytes.Buffer{}
	w := tar.NewWriter(image)
	for _, dir := range []string{"usr", "etc", "tmp", "proc", "sys", "dev", "workspace"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}))
	}
	binds = []string{"--volume", "/usr:/usr:ro"}
	for _, name := range []string{"bin", "sbin", "lib", "lib64", "lib32"} {
		to, linkErr := os.Readlink("/" + name)
		switch {
		case linkErr == nil:
			err = errors.Join(err, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}))
		case dirExists("/" + name):
			err = errors.Join(err, w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}))
			binds = append(binds, "--volume", "/"+name+":/"+name+":ro")
		}
	}
	return image, binds, errors.Join(err, w.Close())
}

func dirExists(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

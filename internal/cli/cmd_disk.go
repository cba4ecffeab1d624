package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	guestaction "github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/disk/scrub"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// whatDisk is how the two kinds of argument are told apart, for each command's help.
const whatDisk = `What has a slash in it is an IMAGE, the file of a raw ext4 file system, such as
./disk.ext4, whose paths are its own. Anything else is a SANDBOX, which must be stopped, and
whose paths are those that were seen inside.`

func (a *app) diskCommand() *cobra.Command {
	cmd := a.nounCommand("disk", "Look at disks that nothing uses, and erase from them", "carboy disk ls web /workspace")
	cmd.AddCommand(a.diskLsCommand(), a.diskReadCommand(), a.diskExportCommand(), a.diskScrubCommand())
	return setHelp(cmd, docs{
		long: `Nothing is mounted, and nothing is started. ` + whatDisk,
		examples: []string{
			"carboy disk ls web /workspace --recursive", "carboy disk read ./disk.ext4 /etc/hostname",
			"carboy disk export web --output web.ext4", "carboy disk scrub ./disk.ext4",
		},
		exits: exitDocsPlain[:],
	})
}

// isImage reports whether an argument names an image, not a sandbox.
func isImage(arg string) bool { return strings.Contains(arg, "/") }

// perhapsImage is err, where no sandbox goes by a name but a file with what the file is
// named by.
func perhapsImage(arg string, err error) error {
	if isImage(arg) {
		return noImage(arg, err)
	}
	if client.KindOf(err) != client.NotFound {
		return err
	}
	if st, serr := os.Lstat(arg); serr != nil || !st.Mode().IsRegular() {
		return err
	}
	return sandbox.Errorf(sandbox.NotFound, "%v", err).WithHint("the image that lies here is ./%s", shell.Word(arg))
}

// noImage is err, unless it is that no image lies there, or nothing that could be one.
func noImage(arg string, err error) error {
	st, serr := os.Stat(arg)
	switch name, at, ok := strings.Cut(arg, ":/"); {
	case errors.Is(serr, fs.ErrNotExist) && ok && !isImage(name):
		return sandbox.Errorf(sandbox.NotFound, "no image lies at %s", shell.Word(arg)).WithHint("a sandbox and its path are two words: %s /%s", shell.Word(name), at)
	case errors.Is(serr, fs.ErrNotExist):
		return sandbox.Errorf(sandbox.NotFound, "no image lies at %s", shell.Word(arg)).WithHint("a sandbox is named without a slash: carboy ls")
	case serr == nil && !st.Mode().IsRegular():
		return sandbox.Errorf(sandbox.Invalid, "%s is no image: it is no regular file", shell.Word(arg)).WithHint("an image is the file of a raw ext4 file system")
	}
	return err
}

func (a *app) diskLsCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "ls [flags] IMAGE|SANDBOX [PATH]",
		Short: "List what lies on a disk",
		Args:  rangeArgs(1, "IMAGE|SANDBOX", "PATH"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.diskLs(ctx, args[0], append(args, "/")[1], recursive)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "list all that is below too")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `Lists a directory, or the one file or link that PATH is, ordered by whole paths. The size of a
directory is 0; links are followed on the way to PATH alone. Devices, pipes and sockets are left
out. What of a sandbox's is not at hand is told on stderr.

` + whatDisk,
		examples: []string{"carboy disk ls web", "carboy disk ls --json --recursive ./disk.ext4 /workspace"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) diskLs(ctx context.Context, arg, at string, recursive bool) error {
	l := diskLister{w: bufio.NewWriter(a.Stdout), json: a.JSON}
	if !isImage(arg) {
		list, err := a.sandboxDiskLs(ctx, arg, at, recursive)
		if err != nil {
			return perhapsImage(arg, err)
		}
		for _, e := range list {
			if err := l.add(e); err != nil {
				return err
			}
		}
		return l.end()
	}
	im, err := disk.Open(arg)
	if err != nil {
		return noImage(arg, err)
	}
	defer im.Close()
	for e, err := range im.Walk(ctx, at, recursive) {
		if err == nil {
			err = l.add(e)
		}
		if err != nil {
			return errors.Join(err, l.w.Flush())
		}
	}
	return l.end()
}

// diskLister writes entries as they come, for a disk may have any number of them.
type diskLister struct {
	w    *bufio.Writer
	json bool
	any  bool
}

// sizeWidth is how wide a size is, but for one that is wider.
const sizeWidth = 12

func (l *diskLister) begin() error {
	head := fmt.Sprintf("%-9s  %*s  %s\n", "TYPE", sizeWidth, "SIZE", "PATH")
	if l.json {
		head = "[\n  "
	}
	if l.any && !l.json {
		return nil
	}
	if l.any {
		head = ",\n  "
	}
	l.any = true
	_, err := l.w.WriteString(head)
	return err
}

func (l *diskLister) add(e guestaction.Entry) error {
	if err := l.begin(); err != nil {
		return err
	}
	if !l.json {
		shown := console.Escape(e.Path)
		if e.LinkTarget != nil {
			shown += " -> " + console.Escape(*e.LinkTarget)
		}
		_, err := fmt.Fprintf(l.w, "%-9s  %*d  %s\n", e.ArtifactType, sizeWidth, e.SizeBytes, shown)
		return err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("  ", "  ")
	if err := enc.Encode(e); err != nil {
		return err
	}
	_, err := l.w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

// end writes what follows the last entry; what is nothing, as nothing.
func (l *diskLister) end() error {
	var err error
	switch {
	case l.json && !l.any:
		_, err = l.w.WriteString("[]\n")
	case l.json:
		_, err = l.w.WriteString("\n]\n")
	case !l.any:
		err = l.begin()
	}
	return errors.Join(err, l.w.Flush())
}

func (a *app) sandboxDiskLs(ctx context.Context, ref, at string, recursive bool) ([]guestaction.Entry, error) {
	svc, err := a.service(ctx)
	if err != nil {
		return nil, err
	}
	list, err := svc.DiskList(ctx, ref, at, recursive)
	if err != nil {
		return nil, err
	}
	for _, note := range list.Notes {
		a.NoteReason("left_out", note)
	}
	return list.Entries, nil
}

func (a *app) diskReadCommand() *cobra.Command {
	most := int64(65536)
	cmd := &cobra.Command{
		Use:   "read [flags] IMAGE|SANDBOX PATH",
		Short: "Read the beginning of a file on a disk",
		Args:  exactArgs("IMAGE|SANDBOX", "PATH"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.diskRead(ctx, args[0], args[1], most)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().Int64Var(&most, "max-bytes", most, "`N` read at most so many bytes, up to 16777216")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `Only regular files are read. With --json, content is text, and base64 where it is no UTF-8,
which the field encoding says. Without, it is written as it is, but to a terminal, where control
characters are shown as what they are.

` + whatDisk,
		examples: []string{"carboy disk read web /workspace/log.txt", "carboy disk read --json --max-bytes 5 ./disk.ext4 /workspace/note.txt"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) diskRead(ctx context.Context, arg, at string, most int64) error {
	if most <= 0 {
		return usage.Errorf("disk read: --max-bytes %d: at least 1", most)
	}
	var r *guestaction.ReadFileReply
	var err error
	if isImage(arg) {
		r, err = disk.Read(ctx, arg, at, most)
	} else {
		svc, serr := a.service(ctx)
		if serr != nil {
			return serr
		}
		r, err = svc.DiskRead(ctx, arg, at, most)
	}
	if err != nil {
		return perhapsImage(arg, err)
	}
	if a.JSON {
		return a.WriteJSON(r)
	}
	content := []byte(r.Content)
	if r.Encoding == "base64" {
		if content, err = base64.StdEncoding.DecodeString(r.Content); err != nil {
			return fmt.Errorf("decode content: %w", err)
		}
	}
	if console.IsTerminal(a.Stdout) {
		content = term.EscapeText(content)
	}
	if _, err := a.Stdout.Write(content); err != nil {
		return err
	}
	if r.Truncated {
		a.NoteReason("left_out", fmt.Sprintf("%s has %d bytes, of which %d were read: --max-bytes", r.Path, r.SizeBytes, r.MaxBytes))
	}
	return nil
}

func (a *app) diskExportCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "export [flags] IMAGE|SANDBOX --output FILE",
		Short: "Copy a disk to a raw ext4 image",
		Args:  exactArgs("IMAGE|SANDBOX"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			if output == "" {
				return usage.Errorf("disk export: --output is missing").WithHint("carboy disk export %s --output disk.ext4", shell.Word(args[0]))
			}
			return a.diskExport(ctx, args[0], output)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FILE` the new file, which must not be there")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `No file is written over, and holes stay holes. An IMAGE is copied as it is. Of a SANDBOX the copy
is scrubbed, as carboy disk scrub does: it holds the layers that the sandbox wrote, root/upper
and workspace among them, not those below.

` + whatDisk,
		examples: []string{"carboy disk export web --output web.ext4", "carboy disk export --json ./disk.ext4 -o copy.ext4"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) diskExport(ctx context.Context, arg, output string) error {
	p := a.NewProgress()
	defer p.Stop()
	var done *api.DiskExport
	var err error
	if isImage(arg) {
		done, err = disk.Export(ctx, arg, output, func(n, _ int64) { p.Set(0, n) })
	} else {
		done, err = a.sandboxDiskExport(ctx, arg, output, p)
	}
	if err != nil {
		return perhapsImage(arg, err)
	}
	return a.Answer(done, done.OutputPath)
}

func (a *app) sandboxDiskExport(ctx context.Context, ref, output string, p *console.Progress) (*api.DiskExport, error) {
	if _, err := os.Lstat(output); err == nil {
		return nil, disk.Exists(output)
	}
	svc, err := a.service(ctx)
	if err != nil {
		return nil, err
	}
	at, err := os.OpenFile(filepath.Dir(output), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("failed to export workspace disk: %w", err)
	}
	dir := beneath.In(at)
	defer dir.Close()
	f, err := durable.Create(dir, durable.Options{Keep: true})
	if err != nil {
		return nil, fmt.Errorf("failed to export workspace disk: %w", err)
	}
	defer f.Discard()
	n, err := svc.DiskExport(ctx, ref, f.File, func(n int64) { p.Set(0, n) })
	if err != nil {
		return nil, err
	}
	err = f.Commit(dir, filepath.Base(output))
	if errors.Is(err, fs.ErrExist) {
		return nil, disk.Exists(output)
	}
	return &api.DiskExport{OutputPath: output, DiskFormat: "ext4", BytesWritten: n}, err
}

func (a *app) diskScrubCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scrub [flags] IMAGE|SANDBOX",
		Short: "Erase what a machine that ran left in /run",
		Args:  exactArgs("IMAGE|SANDBOX"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.diskScrub(ctx, args[0])
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `Empties /run, in place, and overwrites all that no file has: free blocks and inodes, the
journal, what is behind the ends of files and between the entries of directories. Nothing of what was in
/run, nor of what was deleted anywhere, can be found in the image afterwards. It works on a copy,
for which there must be room beside the image: whenever it is interrupted, the image is as it was,
or scrubbed. It needs e2fsck, of e2fsprogs.

What has another name outside of /run stays there. Free blocks of the disk that the image lies on are
not overwritten.

` + whatDisk,
		examples: []string{"carboy disk scrub ./disk.ext4", "carboy disk scrub web"},
		exits:    exitDocsPlain[:],
	})
}

// scrubSteps are the steps of a scrub, for people.
var scrubSteps = map[string]string{
	scrub.StepCopy: "copying the image", scrub.StepReplay: "replaying its journal", scrub.StepRemove: "emptying " + scrub.RunPath,
	scrub.StepSettle: "settling counts", scrub.StepErase: "overwriting what no file has", scrub.StepCheck: "checking the outcome", scrub.StepSwap: "replacing the image",
}

func (a *app) diskScrub(ctx context.Context, arg string) error {
	p := a.NewStatus()
	defer p.Stop()
	tell := func(step string, done, total uint64) {
		text := scrubSteps[step]
		if step == scrub.StepErase && total > 0 {
			text += fmt.Sprintf(", %d%%", min(100*done/total, 100))
		}
		p.Say(text)
	}
	var err error
	if isImage(arg) {
		err = scrub.Scrub(ctx, arg, scrub.Options{Progress: tell})
	} else {
		svc, serr := a.service(ctx)
		if serr != nil {
			return serr
		}
		err = svc.DiskScrub(ctx, arg, func(n api.DiskNews) { tell(n.Step, n.Done, n.Total) })
	}
	if err != nil {
		return perhapsImage(arg, err)
	}
	return a.Answer(scrubbedJSON{arg}, arg)
}

// scrubbedJSON is the answer of a scrub with --json.
type scrubbedJSON struct {
	Scrubbed string `json:"scrubbed"` // as it was named
}

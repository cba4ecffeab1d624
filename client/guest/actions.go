package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
)

// Exec runs a command by the sandbox's shell, and waits for its end; after the timeout, in
// whole seconds, the guest kills it.
func (c *Client) Exec(ctx context.Context, at Address, req action.ExecRequest) (*action.ExecReply, error) {
	if req.TimeoutSeconds <= 0 {
		return nil, fmt.Errorf("timeout_seconds is %d: it has to be positive", req.TimeoutSeconds)
	}
	return ask[action.ExecReply](ctx, c, at, time.Duration(req.TimeoutSeconds)*time.Second+grace, req, nil)
}

// UploadArchive unpacks a gzipped tar archive of that many bytes at a directory of the sandbox.
func (c *Client) UploadArchive(ctx context.Context, at Address, archive io.Reader, size int64, destination string, timeout time.Duration) (*action.ExtractReply, error) {
	req := action.ExtractRequest{Action: action.ExtractArchive, Destination: destination, ArchiveSize: size}
	return ask[action.ExtractReply](ctx, c, at, timeout, req, &exactly{r: archive, left: size})
}

// exactly reads as many bytes as were announced, and fails where there are fewer or more.
type exactly struct {
	r    io.Reader
	left int64
}

// bodyError is why what follows a request could not be read.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "the archive: " + e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.r.Read(p[:min(int64(len(p)), e.left+1)])
	switch e.left -= int64(n); {
	case e.left < 0:
		return 0, &bodyError{errors.New("it is longer than was said")}
	case err == nil, errors.Is(err, io.EOF) && e.left == 0:
		return n, err
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("it ends %d bytes early: %w", e.left, io.ErrUnexpectedEOF)
	}
	return n, &bodyError{err}
}

// ExportArchive writes what is at a path of the sandbox to w, as a gzipped tar archive.
// After an error w may have a part of it.
func (c *Client) ExportArchive(ctx context.Context, at Address, path string, w io.Writer, timeout time.Duration) (*action.ExportReply, error) {
	reply := new(action.ExportReply)
	err := c.call(ctx, at, timeout, action.ExportRequest{Action: action.ExportArchive, Path: path}, nil, func(r io.Reader) error {
		in := bufio.NewReader(r)
		line, err := firstLine(in)
		if err != nil {
			return err
		}
		if err := parse(line, reply); err != nil {
			return err
		}
		if _, err := io.CopyN(w, in, reply.ArchiveSize); err != nil {
			return fmt.Errorf("the archive of %d bytes ended early: %w", reply.ArchiveSize, err)
		}
		if n, err := io.Copy(io.Discard, io.LimitReader(in, 1)); n != 0 || err != nil {
			return errors.Join(errors.New("the archive is longer than was said"), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// firstLine reads an object that ends with a line, or with all there is.
func firstLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for len(line) <= action.MaxReply {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("read the guest's reply: %w", err)
		}
	}
	return line, nil // which parse refuses
}

// OpenShell starts a shell on a terminal under an id of the caller's.
func (c *Client) OpenShell(ctx context.Context, at Address, req action.OpenShellRequest) (*action.Shell, error) {
	req.Action = action.OpenShell
	return ask[action.Shell](ctx, c, at, limit, req, nil)
}

// ReadShell reads what a shell wrote.
func (c *Client) ReadShell(ctx context.Context, at Address, req action.ReadShellRequest) (*action.ReadShellReply, error) {
	req.Action = action.ReadShell
	return ask[action.ReadShellReply](ctx, c, at, limit, req, nil)
}

// WriteShell types something into a shell.
func (c *Client) WriteShell(ctx context.Context, at Address, req action.WriteShellRequest) (*action.WriteShellReply, error) {
	req.Action = action.WriteShell
	return ask[action.WriteShellReply](ctx, c, at, limit, req, nil)
}

// SignalShell signals what runs in a shell's foreground.
func (c *Client) SignalShell(ctx context.Context, at Address, id, signal string) (*action.SignalShellReply, error) {
	return ask[action.SignalShellReply](ctx, c, at, limit, action.SignalShellRequest{Action: action.SignalShell, ShellID: id, Signal: signal}, nil)
}

// CloseShell ends a shell and all that it started.
func (c *Client) CloseShell(ctx context.Context, at Address, id string) (*action.CloseShellReply, error) {
	return ask[action.CloseShellReply](ctx, c, at, limit, action.ShellRequest{Action: action.CloseShell, ShellID: id}, nil)
}

// ShellStatus returns a shell's state.
func (c *Client) ShellStatus(ctx context.Context, at Address, id string) (*action.Shell, error) {
	return ask[action.Shell](ctx, c, at, limit, action.ShellRequest{Action: action.StatusShell, ShellID: id}, nil)
}

// ResizeShell changes the size of a shell's terminal.
func (c *Client) ResizeShell(ctx context.Context, at Address, id string, cols, rows int) (*action.Shell, error) {
	return ask[action.Shell](ctx, c, at, limit, action.ResizeShellRequest{Action: action.ResizeShell, ShellID: id, Cols: cols, Rows: rows}, nil)
}

// ListShells returns all shells that a sandbox knows, by their ids.
func (c *Client) ListShells(ctx context.Context, at Address) (*action.ListShellsReply, error) {
	return ask[action.ListShellsReply](ctx, c, at, limit, action.ListRequest{Action: action.ListShells}, nil)
}

// StartService starts a service and waits until it is ready.
func (c *Client) StartService(ctx context.Context, at Address, req action.StartServiceRequest) (*action.Service, error) {
	req.Action = action.StartService
	within := limit // which is the guest's own, too
	if req.ReadyTimeoutSeconds > 0 {
		within = time.Duration(req.ReadyTimeoutSeconds) * time.Second
	}
	return ask[action.Service](ctx, c, at, within+limit, req, nil) // it may take a while to end
}

// StatusService returns a service's state.
func (c *Client) StatusService(ctx context.Context, at Address, name string) (*action.Service, error) {
	return ask[action.Service](ctx, c, at, limit, action.ServiceRequest{Action: action.StatusService, ServiceName: name}, nil)
}

// LogsService returns the last lines that a service wrote; 0: all that is kept.
func (c *Client) LogsService(ctx context.Context, at Address, name string, tail int) (*action.LogsServiceReply, error) {
	return ask[action.LogsServiceReply](ctx, c, at, limit, action.LogsServiceRequest{Action: action.LogsService, ServiceName: name, TailLines: tail}, nil)
}

// StopService ends a service with all that it started.
func (c *Client) StopService(ctx context.Context, at Address, name string) (*action.Service, error) {
	return ask[action.Service](ctx, c, at, limit, action.ServiceRequest{Action: action.StopService, ServiceName: name}, nil)
}

// ListServices returns all services that a sandbox knows, by their names.
func (c *Client) ListServices(ctx context.Context, at Address) (*action.ListServicesReply, error) {
	return ask[action.ListServicesReply](ctx, c, at, limit, action.ListRequest{Action: action.ListServices}, nil)
}

// ListFiles lists a directory of the sandbox.
func (c *Client) ListFiles(ctx context.Context, at Address, path string, recursive bool) (*action.ListFilesReply, error) {
	return ask[action.ListFilesReply](ctx, c, at, limit, action.ListFilesRequest{Action: action.ListFiles, Path: path, Recursive: recursive}, nil)
}

// ReadFile reads the beginning of a file of the sandbox.
func (c *Client) ReadFile(ctx context.Context, at Address, path string, maxBytes int64) (*action.ReadFileReply, error) {
	return ask[action.ReadFileReply](ctx, c, at, limit, action.ReadFileRequest{Action: action.ReadFile, Path: path, MaxBytes: maxBytes}, nil)
}

// WriteFile makes a file of the sandbox, or replaces one.
func (c *Client) WriteFile(ctx context.Context, at Address, path, text string) (*action.WriteFileReply, error) {
	return ask[action.WriteFileReply](ctx, c, at, limit, action.WriteFileRequest{Action: action.WriteFile, Path: path, Text: text}, nil)
}

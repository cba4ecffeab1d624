package cli

import (
	"context"
	"io"
	"iter"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/client"
)

// Service is what the command line asks of the daemon. A sandbox is named by
// its name or by its ID. *client.Client is one.
type Service interface {
	sandboxes
	commands
	files
	images
	snapshots
	templates
	network
	keys
	volumes
	sessionCalls
	daemon
}

var _ Service = (*client.Client)(nil)

// sandboxes carries sandboxes through their lives.
type sandboxes interface {
	Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error)
	Get(ctx context.Context, id string) (*api.Sandbox, error)
	List(ctx context.Context, o client.ListOptions) ([]api.Sandbox, error)
	Start(ctx context.Context, id string) (*api.Sandbox, error)
	Stop(ctx context.Context, id string) (*api.Sandbox, error)
	Pause(ctx context.Context, id string, req api.PauseRequest) (*api.Sandbox, error)
	Remove(ctx context.Context, id string, force bool) error
	Events(ctx context.Context, id string, follow bool) iter.Seq2[api.Event, error]
	// Hold keeps an ephemeral sandbox until ctx ends; Finish ends it at once.
	Hold(ctx context.Context, id string) error
	Finish(ctx context.Context, id string) error
}

// commands runs commands in sandboxes.
type commands interface {
	Exec(ctx context.Context, id string, o client.ExecOptions) (*guestv1.Exit, error)
	Follow(ctx context.Context, id, command string, o client.ExecOptions) (*guestv1.Exit, error)
	Commands(id string) guestv1connect.ExecServiceClient
}

// files moves files into and out of sandboxes.
type files interface {
	Upload(ctx context.Context, id string, o client.UploadOptions, tar io.Reader) error
	Download(ctx context.Context, id, name, user string) (io.ReadCloser, error)
	Changes(ctx context.Context, id string, o client.ChangesOptions) (io.ReadCloser, error)
}

// images looks after what sandboxes are made of.
type images interface {
	PullImage(ctx context.Context, req api.PullRequest, progress func(api.ImageProgress)) (*api.Image, error)
	ImportImage(ctx context.Context, name string, tar io.Reader, progress func(api.ImageProgress)) (*api.Image, error)
	Images(ctx context.Context) ([]api.Image, error)
	Image(ctx context.Context, ref string) (*api.Image, error)
	RemoveImage(ctx context.Context, ref string) error
	CollectImages(ctx context.Context) (*api.ImageGC, error)
}

// templates builds what sandboxes are made from.
type templates interface {
	RequestBuild(ctx context.Context, req api.BuildRequest) (*api.BuildRef, error)
	FileLink(ctx context.Context, template, hash string) (*api.FileLink, error)
	SendFiles(ctx context.Context, link *api.FileLink, archive io.Reader) error
	StartBuild(ctx context.Context, ref api.BuildRef, plan api.BuildPlan) error
	BuildStatus(ctx context.Context, ref api.BuildRef, offset int) (*api.BuildStatus, error)
	CancelBuild(ctx context.Context, ref api.BuildRef) error
	Templates(ctx context.Context) ([]api.Template, error)
	RemoveTemplate(ctx context.Context, ref string) error
	Template(ctx context.Context, ref string) (*api.TemplateDetail, error)
	PublishTemplate(ctx context.Context, ref string, public bool) ([]string, error)
	TagTemplate(ctx context.Context, target string, tags []string) (*api.TemplateTags, error)
	UntagTemplate(ctx context.Context, name string, tags []string) error
	TemplateCache(ctx context.Context) (*api.TemplateCache, error)
	CollectTemplates(ctx context.Context) (*api.TemplateCache, error)
}

// snapshots keeps what sandboxes wrote.
type snapshots interface {
	Snapshot(ctx context.Context, id string) (*api.Snapshot, error)
	Snapshots(ctx context.Context) ([]api.Snapshot, error)
	RemoveSnapshot(ctx context.Context, id string) error
}

// network is what sandboxes reach, and with which secrets.
type network interface {
	Policy(ctx context.Context, id string) (*api.Policy, error)
	SetPolicy(ctx context.Context, id string, p api.Policy) (*api.Sandbox, error)
	TestPolicy(ctx context.Context, id string, req api.PolicyTestRequest) (*api.PolicyVerdict, error)
	NetLog(ctx context.Context, id string, o client.NetLogOptions) iter.Seq2[api.NetRecord, error]
	Secrets(ctx context.Context) ([]api.Secret, error)
	AddSecret(ctx context.Context, req api.SecretRequest) (*api.Secret, error)
	RemoveSecret(ctx context.Context, name string, force bool) error
	RotateSecret(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error)
}

// keys are for those who come over TCP.
type keys interface {
	Keys(ctx context.Context) ([]api.Key, error)
	MakeKey(ctx context.Context, req api.KeyRequest) (*api.NewKey, error)
	DeleteKey(ctx context.Context, id string) error
}

// volumes looks after disks that outlive sandboxes.
type volumes interface {
	Volumes(ctx context.Context) ([]api.Volume, error)
	CreateVolume(ctx context.Context, req api.VolumeRequest) (*api.Volume, error)
	RemoveVolume(ctx context.Context, ref string) error
}

// sessionCalls are about sandboxes that go by a key, and what is taught in them.
type sessionCalls interface {
	SessionExec(ctx context.Context, key string, req sessions.ExecRequest) (*sessions.ToolResult, error)
	Sessions(ctx context.Context) ([]sessions.SessionInfo, error)
	RemoveSession(ctx context.Context, key string) error
	SessionStatus(ctx context.Context) (*sessions.Status, error)
	SessionErrors(ctx context.Context) ([]sessions.ErrorRecord, error)
	SessionTools(ctx context.Context, queryID string) (*tools.ToolList, error)
	Skills(ctx context.Context) ([]sessions.Skill, error)
	InstallSkills(ctx context.Context, up client.SkillUpload, zip io.Reader) ([]sessions.Skill, error)
	RemoveSkill(ctx context.Context, name string) error
}

// daemon is the daemon itself.
type daemon interface {
	Version(ctx context.Context) (*api.Version, error)
	Status(ctx context.Context) (*api.Status, error)
	Shutdown(ctx context.Context) error
}

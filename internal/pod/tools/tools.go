// Package tools has the tools by which a model in a sandbox spawns pods and speaks to them, served by MCP at the sandbox's gate.
//
// Who calls is known by the gate, and what may be done is judged by package service: a pod has at most what its
// parent has, and a sandbox sees those alone that stand below it.
package tools

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/carboy-sandbox/carboy/internal/mcp"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Pods are those that a sandbox may speak to. *service.Below are some, and documents each method.
type Pods interface {
	Spawn(ctx context.Context, q service.Spawn) (p service.Pod, ended []string, err error)
	List(ctx context.Context) ([]service.Pod, error)
	Get(ctx context.Context, name string) (service.Pod, error)
	Send(ctx context.Context, name, message string) error
	Output(ctx context.Context, name string, from int, wait bool) (service.Output, error)
	Stop(ctx context.Context, name string) (reclaimed []scope.Rule, err error)
	Own(ctx context.Context) (command []string, err error)
}

// Options say whose tools they are. All but Log are required.
type Options struct {
	Pods Pods
	// Note writes a line into the sandbox's log.
	Note func(text string)
	Log  *slog.Logger
}

// Starts and ends of sandboxes cost the machine something: there are so many of them in a while.
const (
	spawnsAtOnce = 20
	spawnEvery   = 2 * time.Second
)

// tools are those of one sandbox.
type tools struct {
	Options
	spawns *rate.Limiter

	mu   sync.Mutex
	read map[string]cursor // by the pod's name and token
}

const instructions = `You can start other agents, called pods, each on a task of its own, in a sandbox of its own, with a part of your
workspace. What a pod may write you can't write until it has stopped; you can go on reading it. SpawnPod returns once the pod has its task:
go on with your own work, and read what it said with ReadPodOutput. Stop each pod that is done, and you can write there again.`

// Handler serves the tools.
func Handler(o Options) http.Handler {
	t := &tools{Options: o, spawns: rate.NewLimiter(rate.Every(spawnEvery), spawnsAtOnce), read: map[string]cursor{}}
	s := mcp.New(mcp.Options{Name: "carboy-pods", Instructions: instructions, Inside: true, Log: o.Log})
	mcp.Add(s, mcp.Tool{
		Name: "SpawnPod", Description: "Start another agent on a task, with a part of your workspace. Returns once it has taken the task.",
	}, t.spawn)
	mcp.Add(s, mcp.Tool{
		Name: "SendToPod", Description: "Give a pod its next task. One that is at its task takes none: wait until it is done.",
	}, t.send)
	mcp.Add(s, mcp.Tool{
		Name: "ReadPodOutput", ReadOnly: true, Description: "Read what a pod has said since you read it last.",
	}, t.output)
	mcp.Add(s, mcp.Tool{
		Name: "StopPod", Destructive: true, Description: "End a pod. What it wrote stays, and you can write there again; what it said is deleted.",
	}, t.stop)
	mcp.Add(s, mcp.Tool{Name: "ListPods", ReadOnly: true, Description: "List the pods below you, and what each may do."}, t.list)
	mcp.Add(s, mcp.Tool{Name: "InspectPod", ReadOnly: true, Description: "Show all that is known of a pod."}, t.inspect)
	return s.Handler()
}

// named is a pod.
type named struct {
	Name string `json:"name" jsonschema:"of the pod"`
}

type message struct {
	Name    string `json:"name" jsonschema:"of the pod"`
	Message string `json:"message" jsonschema:"what it is to do next"`
}

func (t *tools) send(ctx context.Context, in message) (string, error) {
	if err := t.Pods.Send(ctx, in.Name, in.Message); err != nil {
		return "", err
	}
	return fmt.Sprintf("sent message to `%s`", in.Name), nil
}

func (t *tools) stop(ctx context.Context, in named) (string, error) {
	rules, err := t.Pods.Stop(ctx, in.Name)
	if err != nil {
		return "", err
	}
	text := service.Summary(in.Name, rules)
	t.Note("by its tools: " + text)
	return text, nil
}

func (t *tools) inspect(ctx context.Context, in named) (string, error) {
	p, err := t.Pods.Get(ctx, in.Name)
	if err != nil {
		return "", err
	}
	return mcp.JSON(service.View(&p))
}

var errTooManySpawns = sandbox.Errorf(sandbox.Exhausted, "too many pods were spawned in a short time").WithHint("wait %v", spawnEvery)

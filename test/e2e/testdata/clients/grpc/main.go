// Command grpc calls a test service in all four ways that gRPC has, under the
// system's certificate authorities; with an https URL it fetches that instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	run := call
	if strings.HasPrefix(os.Args[1], "https://") {
		run = fetch
	}
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fetch(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	fmt.Println(resp.Proto)
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

func call(ctx context.Context, target string) error {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(credentials.NewTLS(nil)))
	if err != nil {
		return err
	}
	defer conn.Close()
	c := grpc_testing.NewTestServiceClient(conn)
	return errors.Join(unary(ctx, c), down(ctx, c), up(ctx, c), both(ctx, c), fails(ctx, c))
}

func payload(n int) *grpc_testing.Payload { return &grpc_testing.Payload{Body: make([]byte, n)} }

func unary(ctx context.Context, c grpc_testing.TestServiceClient) error {
	var trailer metadata.MD
	r, err := c.UnaryCall(metadata.AppendToOutgoingContext(ctx, "word", "trusted"),
		&grpc_testing.SimpleRequest{ResponseSize: 1 << 20, Payload: payload(1 << 20)}, grpc.Trailer(&trailer))
	if err != nil {
		return fmt.Errorf("unary: %w", err)
	}
	fmt.Println("unary", len(r.GetPayload().GetBody()), trailer.Get("word"))
	return nil
}

func down(ctx context.Context, c grpc_testing.TestServiceClient) error {
	req := &grpc_testing.StreamingOutputCallRequest{}
	for range 20 {
		req.ResponseParameters = append(req.ResponseParameters, &grpc_testing.ResponseParameters{Size: 10_000})
	}
	s, err := c.StreamingOutputCall(ctx, req)
	if err != nil {
		return fmt.Errorf("server stream: %w", err)
	}
	for n := 0; ; n++ {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			fmt.Println("server stream", n)
			return nil
		} else if err != nil {
			return fmt.Errorf("server stream: %w", err)
		}
	}
}

func up(ctx context.Context, c grpc_testing.TestServiceClient) error {
	s, err := c.StreamingInputCall(ctx)
	if err != nil {
		return fmt.Errorf("client stream: %w", err)
	}
	for range 20 {
		if err := s.Send(&grpc_testing.StreamingInputCallRequest{Payload: payload(10_000)}); err != nil {
			return fmt.Errorf("client stream: %w", err)
		}
	}
	r, err := s.CloseAndRecv()
	if err != nil {
		return fmt.Errorf("client stream: %w", err)
	}
	fmt.Println("client stream", r.GetAggregatedPayloadSize())
	return nil
}

// both sends the next message when the former one's answer is here.
func both(ctx context.Context, c grpc_testing.TestServiceClient) error {
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return fmt.Errorf("both ways: %w", err)
	}
	for n := range 10 {
		if err := s.Send(&grpc_testing.StreamingOutputCallRequest{Payload: payload(n)}); err != nil {
			return fmt.Errorf("both ways: %w", err)
		}
		r, err := s.Recv()
		if err != nil {
			return fmt.Errorf("both ways: %w", err)
		}
		if got := len(r.GetPayload().GetBody()); got != n {
			return fmt.Errorf("both ways: %d bytes came back of %d", got, n)
		}
	}
	if err := s.CloseSend(); err != nil {
		return fmt.Errorf("both ways: %w", err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("both ways: it ends with %w", err)
	}
	fmt.Println("both ways 10")
	return nil
}

// fails has the server answer with a status of its own, which is in trailers.
func fails(ctx context.Context, c grpc_testing.TestServiceClient) error {
	_, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{
		ResponseStatus: &grpc_testing.EchoStatus{Code: int32(codes.FailedPrecondition), Message: "not now: 50% ü"},
	})
	s := status.Convert(err)
	fmt.Println("status", s.Code(), s.Message())
	return nil
}

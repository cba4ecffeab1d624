package e2e

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grpcSite is a service with a method of each of the four kinds.
func grpcSite() *grpc.Server {
	s := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(s, grpcService{})
	return s
}

type grpcService struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (grpcService) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	if s := r.GetResponseStatus(); s != nil {
		return nil, status.Error(codes.Code(s.GetCode()), s.GetMessage())
	}
	in, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetTrailer(ctx, metadata.MD{"word": in.Get("word")}); err != nil {
		return nil, err
	}
	return &grpc_testing.SimpleResponse{Payload: &grpc_testing.Payload{Body: make([]byte, r.GetResponseSize())}}, nil
}

func (grpcService) StreamingOutputCall(r *grpc_testing.StreamingOutputCallRequest, s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
	for _, p := range r.GetResponseParameters() {
		if err := s.Send(&grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: make([]byte, p.GetSize())}}); err != nil {
			return err
		}
	}
	return nil
}

func (grpcService) StreamingInputCall(s grpc.ClientStreamingServer[grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse]) error {
	size := 0
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
		}
		if err != nil {
			return err
		}
		size += len(r.GetPayload().GetBody())
	}
}

func (grpcService) FullDuplexCall(s grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&grpc_testing.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

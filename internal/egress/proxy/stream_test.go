package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestEvents streams events one by one: each arrives before the next is sent.
func TestEvents(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		next := make(chan struct{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := range 100 {
				_ = http.NewResponseController(rw).Flush() // the head first, alone
				<-next
				_, _ = fmt.Fprintf(rw, "data: %d\n\n", i)
			}
		}))
		resp, err := w.client(http2).Get(scheme + "://a.example/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		for i := range 100 {
			next <- struct{}{}
			line, err := r.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("event %d: %q, %v", i, line, err)
			}
			_, _ = r.ReadString('\n')
		}
	})
}

func TestWebSocket(t *testing.T) {
	for _, scheme := range []string{"https", "http"} {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
			if err != nil {
				return
			}
			defer c.CloseNow()
			c.SetReadLimit(1 << 20)
			for {
				typ, data, err := c.Read(r.Context())
				if err != nil {
					return
				}
				if err := c.Write(r.Context(), typ, data); err != nil {
					return
				}
			}
		}))
		c, resp, err := websocket.Dial(t.Context(), scheme+"://a.example/ws?x=1", &websocket.DialOptions{
			HTTPClient: w.client(false), Subprotocols: []string{"chat"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 101 || c.Subprotocol() != "chat" {
			t.Errorf("%d, %q", resp.StatusCode, c.Subprotocol())
		}
		c.SetReadLimit(1 << 20)
		for _, n := range []int{1, 100, 70_000} {
			want := strings.Repeat("x", n)
			if err := c.Write(t.Context(), websocket.MessageText, []byte(want)); err != nil {
				t.Fatal(err)
			}
			if _, got, err := c.Read(t.Context()); err != nil || string(got) != want {
				t.Fatalf("%d bytes came back of %d, %v", len(got), n, err)
			}
		}
		if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		r := w.recorded(func(r netlog.Record) bool { return r.Status == 101 })
		if r.Sent < 70_000 || r.Received < 70_000 || r.Path != "/ws" {
			t.Errorf("recorded %+v", r)
		}
	}
}

// TestUpgradeToHTTP asks for an upgrade under which requests would go unread:
// it is ignored.
func TestUpgradeToHTTP(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(echoServer))
	for _, to := range []string{"h2c", "HTTP/2.0", "TLS/1.0", "websocket, h2c"} {
		resp, body := speak(t, w.dial("45.0.0.1:80"), "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+to+"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
		if resp.StatusCode != 200 || strings.Contains(body, "Upgrade") || strings.Contains(strings.ToLower(body), "http2-settings") {
			t.Errorf("%s: %d %s", to, resp.StatusCode, body)
		}
	}
}

// TestHalfClose ends one way of an upgraded connection, and hears the rest.
func TestHalfClose(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
		data, _ := io.ReadAll(buf)
		_, _ = fmt.Fprintf(c, "heard %d", len(data))
	}))
	c := w.dial("45.0.0.1:80")
	_ = c.SetDeadline(time.Now().Add(patience.For(10 * time.Second)))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	r := bufio.NewReader(c)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	_, _ = io.WriteString(c, strings.Repeat("x", 5000))
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(r); err != nil || string(got) != "heard 5000" {
		t.Errorf("%q, %v", got, err)
	}
}

// echoGRPC is a service of four methods without generated code.
var echoGRPC = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Unary",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "t"))
			if in.Value == "fail" {
				return nil, status.Error(codes.FailedPrecondition, "as asked")
			}
			return in, nil
		},
	}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Client", ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			var all string
			for {
				in := new(wrapperspb.StringValue)
				if err := s.RecvMsg(in); errors.Is(err, io.EOF) {
					return s.SendMsg(wrapperspb.String(all))
				} else if err != nil {
					return err
				}
				all += in.Value
			}
		}},
		{StreamName: "Server", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			in := new(wrapperspb.StringValue)
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			for range 10 {
				if err := s.SendMsg(in); err != nil {
					return err
				}
			}
			return nil
		}},
		{StreamName: "Both", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				in := new(wrapperspb.StringValue)
				if err := s.RecvMsg(in); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(in); err != nil {
					return err
				}
			}
		}},
	},
}

func TestGRPC(t *testing.T) {
	for _, scheme := range []string{"https", "http"} {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.at("a.example", "45.0.0.1")
		l := w.listen()
		var opts []grpc.ServerOption
		addr, creds := "45.0.0.1:80", insecure.NewCredentials()
		if scheme == "https" {
			addr = "45.0.0.1:443"
			cert := w.ca.issue(t, nil, "a.example")
			opts = append(opts, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
			creds = credentials.NewTLS(&tls.Config{RootCAs: w.trusted, ServerName: "a.example"})
		}
		w.serve(addr, l)
		s := grpc.NewServer(opts...)
		s.RegisterService(&echoGRPC, struct{}{})
		go s.Serve(l)
		t.Cleanup(s.Stop)
		cc := w.grpc(t, "a.example"+strings.TrimPrefix(addr, "45.0.0.1"), creds)
		callGRPC(t, cc)
	}
}

// grpc is a client of gRPC in the sandbox.
func (w *world) grpc(t *testing.T, target string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+target,
		grpc.WithTransportCredentials(creds), grpc.WithAuthority(strings.Split(target, ":")[0]),
		grpc.WithContextDialer(func(_ context.Context, addr string) (net.Conn, error) { return w.dialName(addr) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func callGRPC(t *testing.T, cc *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(20*time.Second))
	defer cancel()
	out := new(wrapperspb.StringValue)
	var trailer metadata.MD
	if err := cc.Invoke(ctx, "/test.Echo/Unary", wrapperspb.String("hi"), out, grpc.Trailer(&trailer)); err != nil || out.Value != "hi" {
		t.Errorf("unary: %v, %v", out, err)
	}
	if got := trailer.Get("x-trailer"); len(got) != 1 {
		t.Errorf("unary: trailer %v", trailer)
	}
	err := cc.Invoke(ctx, "/test.Echo/Unary", wrapperspb.String("fail"), out)
	if st := status.Convert(err); st.Code() != codes.FailedPrecondition || st.Message() != "as asked" {
		t.Errorf("unary that fails: %v", err)
	}
	stream := func(name string, client, server bool) grpc.ClientStream {
		s, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: client, ServerStreams: server}, "/test.Echo/"+name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	client := stream("Client", true, false)
	for range 5 {
		_ = client.SendMsg(wrapperspb.String("ab"))
	}
	_ = client.CloseSend()
	if err := client.RecvMsg(out); err != nil || out.Value != "ababababab" {
		t.Errorf("client stream: %v, %v", out, err)
	}
	server := stream("Server", false, true)
	_ = server.SendMsg(wrapperspb.String("x"))
	_ = server.CloseSend()
	n := 0
	for server.RecvMsg(out) == nil {
		n++
	}
	if n != 10 {
		t.Errorf("server stream: %d messages", n)
	}
	both := stream("Both", true, true)
	for i := range 10 {
		want := fmt.Sprint(i)
		if err := both.SendMsg(wrapperspb.String(want)); err != nil {
			t.Fatal(err)
		}
		if err := both.RecvMsg(out); err != nil || out.Value != want {
			t.Errorf("both ways: %v, %v", out, err)
		}
	}
	_ = both.CloseSend()
	if err := both.RecvMsg(out); !errors.Is(err, io.EOF) {
		t.Errorf("both ways: ended with %v", err)
	}
}

// TestGRPCRefused reads the reason of a refusal as a client of gRPC does.
func TestGRPCRefused(t *testing.T) {
	p := policy.Policy{Rules: []policy.Rule{{
		ID: "r", Hosts: []string{"a.example"},
		Matches: []policy.Match{{Paths: []policy.Value{{Value: "/test.Echo/Unary", Type: policy.MatchExact}}}},
	}}}
	w := newWorld(t, p, worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(echoServer)) // no gRPC: nothing must arrive
	cc := w.grpc(t, "a.example:443", credentials.NewTLS(&tls.Config{RootCAs: w.trusted, ServerName: "a.example"}))
	err := cc.Invoke(t.Context(), "/test.Echo/Other", wrapperspb.String("hi"), new(wrapperspb.StringValue))
	st := status.Convert(err)
	if st.Code() != codes.PermissionDenied || !strings.HasPrefix(st.Message(), "request_refused: ") {
		t.Errorf("refused with %v", err)
	}
	w.recorded(code(string(policy.CodeRequest)))
}

// TestGRPCNeedsHTTP2 has an upstream that speaks HTTP/1 alone.
func TestGRPCNeedsHTTP2(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.at("a.example", "45.0.0.1")
	w.start("45.0.0.1:443", http.HandlerFunc(echoServer), &tls.Config{
		Certificates: []tls.Certificate{w.ca.issue(t, nil, "a.example")}, NextProtos: []string{"http/1.1"},
	})
	cc := w.grpc(t, "a.example:443", credentials.NewTLS(&tls.Config{RootCAs: w.trusted, ServerName: "a.example"}))
	err := cc.Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String("hi"), new(wrapperspb.StringValue))
	if st := status.Convert(err); st.Code() != codes.Unavailable || !strings.Contains(st.Message(), proxy.CodeUpstream) {
		t.Errorf("refused with %v", err)
	}
	// Control: what is no gRPC goes to it, in HTTP/1.
	resp, err := w.client(true).Get("https://a.example/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"HTTP/1.1"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

"""A client of Box's RPC that shares nothing with Carboy: raw WebSocket frames
over a socket, with the standard library alone, written from the description of
the protocol. Usage: python3 rpc.py HOST:PORT [SCENARIO...]; with a file BOX_CA
in the environment it speaks TLS, with whom that vouches for, and with BOX_TOKEN
it says that token. Each scenario
prints one line of JSON, and whatever is not as described ends the program.
"""
import base64, hashlib, io, json, os, socket, ssl, struct, sys, threading, time, zipfile

# How much longer than on a quiet machine to wait: see test/patience.
PATIENCE = min(max(float(os.environ.get("CARBOY_PATIENCE") or 1), 1), 6)


class WS:
    """One WebSocket connection as a client, RFC 6455."""

    def __init__(self, addr, path, headers=(), protocols=None):
        host, port = addr.rsplit(":", 1)
        self.s = socket.create_connection((host, int(port)), 10 * PATIENCE)
        if os.environ.get("BOX_CA"):
            self.s = ssl.create_default_context(cafile=os.environ["BOX_CA"]).wrap_socket(self.s, server_hostname=host)
        self.s.settimeout(120 * PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {addr}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        if protocols:
            lines.append("Sec-WebSocket-Protocol: " + protocols)
        if os.environ.get("BOX_TOKEN"):
            lines.append("X-LangBot-Box-Control-Token: " + os.environ["BOX_TOKEN"])
        lines += [f"{k}: {v}" for k, v in headers]
        self.s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.f = self.s.makefile("rb")
        status = self.f.readline().decode().split(" ", 2)
        self.status, self.headers = int(status[1]), {}
        while (line := self.f.readline().decode().rstrip("\r\n")):
            k, v = line.split(":", 1)
            self.headers[k.strip().lower()] = v.strip()
        if self.status != 101:
            self.body = self.f.read(int(self.headers.get("content-length", 0)))
            return
        want = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        assert self.headers["sec-websocket-accept"] == want
        self.lock = threading.Lock()
        self.fragments, self.pings = 0, 0

    def frame(self, op, payload, fin=True):
        mask = os.urandom(4)
        head = bytes([(0x80 if fin else 0) | op])
        n = len(payload)
        if n < 126:
            head += bytes([0x80 | n])
        elif n < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack(">H", n)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", n)
        masked = (int.from_bytes(payload, "little") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "little")).to_bytes(n, "little")
        with self.lock:
            self.s.sendall(head + mask + masked)

    def send(self, text, piece=None):
        """Sends one message, in fragments of piece bytes."""
        b = text.encode()
        if not piece or len(b) <= piece:
            return self.frame(1, b)
        for i in range(0, len(b), piece):
            self.frame(1 if i == 0 else 0, b[i:i + piece], i + piece >= len(b))

    def need(self, n):
        b = self.f.read(n)
        if len(b) != n:
            raise EOFError
        return b

    def recv(self):
        """Returns one message; None once the other side has closed."""
        parts = []
        while True:
            a, b = self.need(2)
            assert not b & 0x80, "a server must not mask"
            n = b & 0x7F
            if n == 126:
                n = struct.unpack(">H", self.need(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.need(8))[0]
            payload, op = self.need(n), a & 0x0F
            if op == 9:
                self.pings += 1
                self.frame(10, payload)
            elif op == 8:
                self.code = struct.unpack(">H", payload[:2])[0] if n >= 2 else 1005
                return None
            elif op in (0, 1):
                parts.append(payload)
                if a & 0x80:
                    return b"".join(parts).decode()
                self.fragments += 1
            else:
                assert op == 10, op

    def close(self):
        try:
            self.frame(8, struct.pack(">H", 1000))
        except OSError:
            pass
        self.s.close()


def whole(m):
    try:
        json.loads(m)
        return True
    except json.JSONDecodeError:
        return False


class Refused(Exception):
    pass


class Box:
    """The RPC over one connection. Calls may come from several threads."""

    def __init__(self, addr, headers=(), context=None):
        self.addr, self.headers, self.context = addr, list(headers), context
        self.ws = WS(addr, "/rpc/ws", self.headers)
        assert self.ws.status == 101, (self.ws.status, self.ws.body)
        self.seq, self.lock, self.waits = int.from_bytes(os.urandom(2), "big"), threading.Lock(), {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while (m := self.ws.recv()) is not None:
                # To a client of before there were headers a message of more than
                # 1 MiB comes in several: it joins them until they are one.
                while not self.headers and not whole(m):
                    m += self.ws.recv()
                r = json.loads(m)
                done, box = self.waits.pop(r["seq_id"])
                box.append(r)
                done.set()
        except (EOFError, OSError, KeyError) as e:
            self.broken = e
        for done, _ in list(self.waits.values()):
            done.set()

    def call(self, action, data=None, timeout=60, piece=None):
        done, got = threading.Event(), []
        with self.lock:
            self.seq += 1
            req = {"seq_id": self.seq, "action": action, "data": data or {}}
            self.waits[self.seq] = (done, got)
        if self.context:
            req["context"] = self.context
        self.ws.send(json.dumps(req), piece)
        assert done.wait(timeout * PATIENCE), action + ": no answer"
        assert got, action + ": the connection broke"
        if got[0]["code"] != 0:
            raise Refused(got[0]["message"])
        return got[0]["data"]

    def file(self, data, ext):
        key, size = hashlib.sha256(data).hexdigest() + "-" + os.urandom(16).hex() + "." + ext, 16384
        pieces = [data[i:i + size] for i in range(0, len(data), size)] or [b""]
        for i, p in enumerate(pieces):
            self.call("__file_chunk", {"file_key": key, "file_length": len(data), "chunk_base64": base64.b64encode(p).decode(),
                                       "chunk_index": i, "chunk_amount": len(pieces), "chunk_size": len(p)})
        return key

    def relay(self, session, process):
        who = list(self.headers)
        if self.context:
            who += [("X-LangBot-Workspace-Id", self.context["workspace_uuid"]),
                    ("X-LangBot-Placement-Generation", str(self.context["placement_generation"]))]
        return WS(self.addr, f"/v1/sessions/{session}/managed-process/{process}/ws", who, "mcp")


def spec(session, cmd="", **more):
    s = {"cmd": cmd, "workdir": "/workspace", "timeout_sec": 30, "network": "off", "session_id": session, "env": {},
         "image": "rockchin/langbot-sandbox:latest", "host_path": None, "host_path_mode": "rw", "mount_path": "/workspace",
         "extra_mounts": [], "persistent": False, "cpus": 1.0, "memory_mb": 512, "pids_limit": 128,
         "read_only_rootfs": True, "workspace_quota_mb": 0}
    s.update(more)
    return s


def refused(f, *words):
    try:
        f()
    except Refused as e:
        assert all(w in str(e) for w in words), (str(e), words)
        return str(e)
    raise AssertionError("not refused: " + " ".join(words))


def everything(addr, lines=10000, headers=(), context=None):
    """ping, init, exec, conflict, sessions, delete, process, relay, skills, shutdown."""
    b = Box(addr, headers, context)
    out = {}
    assert b.call("__ping") == {}
    assert b.call("box_init", {"backend": "local", "local": {"profile": "default", "host_root": "/app/data/box"}})["initialized"] is True
    health = b.call("box_health")
    assert health["available"] is True and health["name"], health
    r = b.call("box_exec", spec("person_alice", "pwd; echo err >&2; exit 3", env={"A": "1"}))
    assert (r["status"], r["exit_code"], r["stdout"], r["stderr"], r["session_id"]) == ("completed", 3, "/workspace\n", "err\n", "person_alice"), r
    assert b.call("box_exec", spec("person_alice", "echo $A x", env={"A": "é☺"}))["stdout"] == "é☺ x\n"
    out["conflict"] = refused(lambda: b.call("box_exec", spec("person_alice", "true", cpus=2.0, network="on")),
                              "BoxSessionConflictError: Box session person_alice already exists with", "cpus", "network")
    refused(lambda: b.call("box_exec", spec("person_alice", "  ")), "BoxValidationError:", "cmd must not be empty")
    refused(lambda: b.call("box_exec", spec("person_alice", "x", memory_mb=8)), "BoxValidationError:", "memory_mb")
    refused(lambda: b.call("box_exec", spec("person_bob", "x", host_path="/etc")), "BoxValidationError:")
    refused(lambda: b.call("box_get_session", {"session_id": "nobody"}), "BoxSessionNotFoundError:", "session nobody not found")
    refused(lambda: b.call("box_nosuch"), "box_nosuch")
    info = b.call("box_create_session", spec("room_1", persistent=True))
    assert info["session_id"] == "room_1" and info["persistent"] is True and info["host_path"] is None, info
    # One message of 600 KB in fragments, and an answer of a megabyte.
    script = "# " + "x" * 600_000 + "\nhead -c 1000000 /dev/zero | tr '\\0' y"
    r = b.call("box_exec", spec("room_1", script, persistent=True), piece=65536)
    assert r["stdout"] == "y" * 1_000_000, (r["status"], r["stderr"][:200], len(r["stdout"]))
    r = b.call("box_exec", spec("room_1", "head -c 3000000 /dev/zero | tr '\\0' z", persistent=True))
    assert r["stdout"].startswith("z" * 1048576) and "raw output clipped at 1048576 bytes, 1951424 bytes discarded" in r["stdout"][1048576:], r["stdout"][1048576:][:200]
    ids = [s["session_id"] for s in b.call("box_get_sessions")["sessions"]]
    assert sorted(ids) == ["person_alice", "room_1"], ids
    st = b.call("box_status")
    assert st["active_sessions"] == 2 and st["session_ttl_sec"] == 300 and st["backend"]["available"] is True, st
    out["relay"] = echo(b, lines)
    out["skills"] = skills(b)
    assert b.call("box_delete_session", {"session_id": "person_alice"}) == {"deleted": "person_alice"}
    refused(lambda: b.call("box_delete_session", {"session_id": "person_alice"}), "BoxSessionNotFoundError:")
    assert b.call("box_shutdown") == {}
    assert b.call("box_get_sessions")["sessions"] == []
    assert b.call("__ping") == {}
    return out


def physical(b, session):
    """The session's name in a relay's path, where a host serves several workspaces."""
    if not b.context:
        return session
    c = b.context
    digest = hashlib.sha256((c["instance_uuid"] + "\0" + c["workspace_uuid"]).encode()).hexdigest()[:24]
    return f"ws-{digest}-g{c['placement_generation']}-{session}"


def echo(b, lines):
    """Lines of JSON of up to 1 MiB through a managed process and back."""
    p = b.call("box_start_managed_process", {"session_id": "room_1", "spec": {
        "process_id": "mcp", "command": "cat", "args": [], "env": {"SECRET": "hidden"}, "cwd": "/workspace"}})
    assert p["status"] == "running" and p["env_keys"] == ["SECRET"] and "hidden" not in json.dumps(p), p
    ws = b.relay(physical(b, "room_1"), "mcp")
    assert ws.status == 101 and ws.headers.get("sec-websocket-protocol") == "mcp", (ws.status, ws.headers)
    size = lambda i: 1 << 20 if i % 500 == 0 else (i * 7919) % 4000
    line = lambda i: json.dumps({"jsonrpc": "2.0", "id": i, "text": "é" + "x" * max(size(i) - 60, 0)}, ensure_ascii=False)
    start = time.monotonic()

    def send():
        for i in range(lines):
            ws.send(line(i))

    t = threading.Thread(target=send, daemon=True)
    t.start()
    total = 0
    for i in range(lines):
        got = ws.recv()
        assert got == line(i), (i, got and got[:100])
        total += len(got)
    t.join()
    took = time.monotonic() - start
    assert b.call("box_get_managed_process", {"session_id": "room_1", "process_id": "mcp"})["attached"] is True
    ws.close()
    # A lost relay ends nothing, and the next one goes on.
    ws = b.relay(physical(b, "room_1"), "mcp")
    ws.send('{"again":1}')
    assert ws.recv() == '{"again":1}'
    assert b.call("box_stop_managed_process", {"session_id": "room_1", "process_id": "mcp"}) == {"stopped": "mcp"}
    assert ws.recv() is None
    refused(lambda: b.call("box_get_managed_process", {"session_id": "room_1", "process_id": "mcp"}), "BoxManagedProcessNotFoundError:",
            "has no managed process with process_id=mcp")
    gone = b.relay(physical(b, "room_1"), "mcp")
    assert gone.status == 400 and json.loads(gone.body)["error"]["code"] == "BoxManagedProcessNotFoundError", (gone.status, gone.body)
    return {"lines": lines, "bytes": total, "seconds": round(took, 2)}


def archive(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in files.items():
            z.writestr(name, text)
    return out.getvalue()


def skills(b):
    text = "---\nname: greet\ndescription: Greets people\n---\nRun greet.sh with a name.\n"
    data = archive({"greet/SKILL.md": text, "greet/greet.sh": "echo hello $1\n"})
    seen = b.call("box_preview_skill_zip", {"file_key": b.file(data, "zip"), "filename": "greet.zip", "source_subdir": "", "target_suffix": "upload"})
    assert len(seen["skills"]) == 1 and b.call("box_list_skills")["skills"] == [], seen
    # A process that runs while the skill comes is still there after.
    b.call("box_start_managed_process", {"session_id": "room_1", "spec": {"process_id": "old", "command": "sleep", "args": ["1000"]}})
    done = b.call("box_install_skill_zip", {"file_key": b.file(data, "zip"), "filename": "greet.zip", "source_paths": [], "source_path": "",
                                            "source_subdir": "", "target_suffix": "upload"})["skills"]
    assert [s["name"] for s in done] == ["greet"] and done[0]["description"] == "Greets people", done
    assert "Run greet.sh" in b.call("box_get_skill", {"name": "greet"})["skill"]["instructions"]
    mount = {"host_path": done[0]["package_root"], "mount_path": "/workspace/.skills/greet", "mode": "rw"}
    r = b.call("box_exec", spec("room_1", "sh /workspace/.skills/greet/greet.sh you", persistent=True, extra_mounts=[mount]))
    assert r["stdout"] == "hello you\n", r
    assert b.call("box_get_managed_process", {"session_id": "room_1", "process_id": "old"})["status"] == "running"
    assert b.call("box_write_skill_file", {"name": "greet", "path": "notes.md", "content": "ünï"})
    assert b.call("box_read_skill_file", {"name": "greet", "path": "notes.md"})["content"] == "ünï"
    r = b.call("box_exec", spec("room_1", "cat /workspace/.skills/greet/notes.md", persistent=True, extra_mounts=[mount]))
    assert r["stdout"] == "ünï", r
    bad = archive({"../evil/SKILL.md": text})
    refused(lambda: b.call("box_install_skill_zip", {"file_key": b.file(bad, "zip"), "filename": "x.zip"}), "BoxValidationError:")
    assert b.call("box_delete_skill", {"name": "greet"})["deleted"]
    return {"installed": 1}


def tree(addr):
    """A command whose time is up ends with all that it started; a process stays."""
    b = Box(addr)
    keep = spec("t1", persistent=True)
    b.call("box_create_session", keep)
    b.call("box_start_managed_process", {"session_id": "t1", "spec": {"process_id": "mcp", "command": "sleep", "args": ["4711"]}})
    cmd = "for i in 1 2 3; do (setsid sh -c 'sleep 4712 & sleep 4712' &) ; done; nohup sleep 4712 & echo part; sleep 4712"
    for sec in 2, 6, 18:  # a busy machine says nothing in two seconds
        r = b.call("box_exec", dict(keep, cmd=cmd, timeout_sec=sec))
        if r["stdout"]:
            break
    assert r["status"] == "timed_out" and r["exit_code"] is None and r["stdout"] == "part\n" and "timed out" in r["stderr"], r
    left = b.call("box_exec", dict(keep, cmd="cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'sleep 471[0-9]' | sort | uniq -c; true"))
    # The search is a command of its own, and may see nothing of the other's processes.
    assert "4712" not in left["stdout"].replace("sleep 471[", ""), left
    assert b.call("box_get_managed_process", {"session_id": "t1", "process_id": "mcp"})["status"] == "running"
    b.call("box_delete_session", {"session_id": "t1"})
    return {"after": left["stdout"]}


def quota(addr):
    """A workspace that is ours is full when its quota says so, and nothing else happens."""
    b = Box(addr)
    s = lambda cmd: spec("q1", cmd, workspace_quota_mb=20)
    assert b.call("box_exec", s("echo kept > kept.txt"))["exit_code"] == 0
    r = b.call("box_exec", s("dd if=/dev/zero of=big bs=1M count=64"))
    assert r["exit_code"] != 0 and "No space left on device" in r["stderr"], r
    size = b.call("box_exec", s("cat kept.txt; stat -c %s big; rm big; echo ok"))
    assert size["stdout"].startswith("kept\n") and size["stdout"].endswith("ok\n"), size
    b.call("box_delete_session", {"session_id": "q1"})
    return {"written": int(size["stdout"].split()[1])}


def owned(addr):
    """A host_path of the client's own machine is a workspace that the runtime owns."""
    b = Box(addr)
    b.call("box_init", {"local": {"host_root": "/nowhere/data/box", "default_workspace": "", "allowed_mount_roots": ["/nowhere/data/box", "/tmp"]}})
    here = lambda session, cmd, **more: spec(session, cmd, host_path="/nowhere/data/box/default", workspace_quota_mb=16, **more)
    assert b.call("box_exec", here("o1", "echo one > one.txt"))["exit_code"] == 0
    assert b.call("box_exec", here("o2", "cat one.txt"))["stdout"] == "one\n", "shared by the sessions that name it"
    r = b.call("box_exec", here("o2", "dd if=/dev/zero of=big bs=1M count=64"))
    assert r["exit_code"] != 0 and "No space left on device" in r["stderr"], r
    for s in ("o1", "o2"):
        b.call("box_delete_session", {"session_id": s})
    assert b.call("box_exec", here("o3", "cat one.txt; rm big one.txt"))["stdout"] == "one\n", "it stays"
    refused(lambda: b.call("box_exec", spec("o4", "true", host_path="/var/other")), "BoxValidationError:", "allowed_mount_roots")
    b.call("box_delete_session", {"session_id": "o3"})
    return {}


def load(addr, sessions=50, execs=20):
    """Many sessions, each with a line of commands; what each call took."""
    b = Box(addr)
    times, errors, lock = [], [], threading.Lock()

    def one(i):
        for k in range(execs):
            t = time.monotonic()
            try:
                r = b.call("box_exec", spec(f"load_{i}", f"echo {i} {k}", memory_mb=64, timeout_sec=120), timeout=300)
                ok = r["stdout"] == f"{i} {k}\n"
            except (Refused, AssertionError) as e:
                ok, r = False, repr(e)
            with lock:
                times.append(time.monotonic() - t)
                if not ok:
                    errors.append(r)

    start = time.monotonic()
    all_ = [threading.Thread(target=one, args=(i,)) for i in range(sessions)]
    [t.start() for t in all_]
    [t.join() for t in all_]
    took = time.monotonic() - start
    assert not errors, errors[:3]
    for i in range(sessions):
        b.call("box_delete_session", {"session_id": f"load_{i}"})
    times.sort()
    at = lambda q: round(1000 * times[min(int(q * len(times)), len(times) - 1)], 1)
    return {"sessions": sessions, "execs": len(times), "seconds": round(took, 2), "per_second": round(len(times) / took, 1),
            "p50_ms": at(0.5), "p99_ms": at(0.99), "errors": len(errors)}


def latency(addr, n=30):
    """What making a session takes, and a command in one."""
    b = Box(addr)
    ms = lambda t: 1000 * (time.monotonic() - t)
    create, first, exec_ = [], [], []
    for i in range(n):
        t = time.monotonic()
        b.call("box_create_session", spec(f"lat_{i}"))
        create.append(ms(t))
        t = time.monotonic()
        assert b.call("box_exec", spec(f"lat_{i}", "true"))["exit_code"] == 0
        first.append(ms(t))
        t = time.monotonic()
        assert b.call("box_exec", spec(f"lat_{i}", "true"))["exit_code"] == 0
        exec_.append(ms(t))
        b.call("box_delete_session", {"session_id": f"lat_{i}"})
        time.sleep(float(os.environ.get("BOX_PAUSE", "0")))
    mid = lambda v: round(sorted(v)[len(v) // 2], 1)
    return {"n": n, "create_ms": mid(create), "first_exec_ms": mid(first), "exec_ms": mid(exec_)}


def tenants(addr):
    """A host that serves workspaces: the same session of two, and a new generation."""
    who = [("X-LangBot-Instance-Id", "inst-1")]
    ctx = lambda w, g: {"instance_uuid": "inst-1", "workspace_uuid": w, "placement_generation": g}
    one, two = Box(addr, who, ctx("w1", 1)), Box(addr, who, ctx("w2", 1))
    assert one.call("box_exec", spec("global", "echo one > f; cat f"))["session_id"] == "global"
    assert two.call("box_exec", spec("global", "cat f"))["exit_code"] != 0
    assert [s["session_id"] for s in two.call("box_get_sessions")["sessions"]] == ["global"]
    newer = Box(addr, who, ctx("w1", 2))
    assert newer.call("box_get_sessions")["sessions"] == []
    out = refused(lambda: one.call("box_get_sessions"), "generation")
    assert [s["session_id"] for s in two.call("box_get_sessions")["sessions"]] == ["global"]
    two.call("box_delete_session", {"session_id": "global"})
    return {"stale": out}


def main():
    addr, names = sys.argv[1], sys.argv[2:]
    for name in names:
        f, _, args = name.partition(":")
        print(json.dumps({f: globals()[f](addr, *map(int, filter(None, args.split(","))))}), flush=True)


def secure(addr):
    """Calls one after the other, over TLS: a connection of Python's ssl is not for
    a thread that reads and another that writes."""
    ws = WS(addr, "/rpc/ws")
    assert ws.status == 101, (ws.status, ws.body)
    calls = [("__ping", {}), ("box_exec", spec("tls", "head -c 300000 /dev/zero | tr '\\0' x")), ("box_delete_session", {"session_id": "tls"})]
    for seq, (action, data) in enumerate(calls):
        ws.send(json.dumps({"seq_id": seq, "action": action, "data": data}))
        m = json.loads(ws.recv())
        assert (m["seq_id"], m["code"]) == (seq, 0), m
        assert action != "box_exec" or m["data"]["stdout"] == "x" * 300000
    ws.close()
    return {"calls": len(calls)}


def tenanted(addr, lines=200):
    """Everything again, as a host that serves workspaces asks for it."""
    return everything(addr, lines, [("X-LangBot-Instance-Id", "inst-1")], {"instance_uuid": "inst-1", "workspace_uuid": "w9", "placement_generation": 3})


if __name__ == "__main__":
    main()

"""Speaks the action protocol to a sandbox by its socket, with the standard library alone.

usage: actions.py SOCKET [LINES]

What it has done it says a line each. After "shell" a shell writes, and is read while whoever
runs this may kill the daemon, until its stdin ends.
"""

import base64
import hashlib
import io
import json
import os
import socket
import sys
import tarfile
import time

PORT = 5005
FACTOR = min(max(float(os.environ.get("CARBOY_PATIENCE") or 1), 1), 6)  # see test/patience
PATIENCE = 120 * FACTOR  # seconds for a daemon to come back


class Refused(Exception):
    """What the guest does not want to do, in its words."""


def connect(path, port=PORT):
    """Returns a connection to a port of the sandbox."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(60 * FACTOR)
    os.chdir(os.path.dirname(path))  # the kernel takes 107 bytes at most
    s.connect(os.path.basename(path))
    s.sendall(b"CONNECT %d\n" % port)
    line = b""
    while not line.endswith(b"\n"):
        byte = s.recv(1)
        if not byte:
            raise ConnectionError("the socket ended after %r" % line)
        line += byte
    if not line.startswith(b"OK "):
        s.close()
        raise ConnectionRefusedError(line.decode().strip())
    return s


def exchange(path, request, body=b"", end=False):
    """Sends a request and returns all that comes back; end closes this direction first."""
    if not isinstance(request, bytes):
        request = json.dumps(request).encode()
    s = connect(path)
    with s:
        s.sendall(request + b"\n" + body)
        if end:
            s.shutdown(socket.SHUT_WR)
        raw = b""
        while part := s.recv(65536):
            raw += part
    return raw


def ask(path, request, body=b""):
    reply = json.loads(exchange(path, request, body))
    if not isinstance(reply, dict):
        raise ValueError("the reply is no JSON object: %r" % reply)
    if "error" in reply:
        raise Refused(reply["error"])
    return reply


def insist(path, request):
    """Is ask, over as many daemons as it takes: only for what may be asked twice."""
    late = time.monotonic() + PATIENCE
    while True:
        try:
            return ask(path, request)
        except (OSError, ValueError):  # none listens, or it was killed in the middle
            if time.monotonic() > late:
                raise
            time.sleep(0.02)


def run(path):
    """A command, and one that fails."""
    reply = ask(path, {"command": "echo $((6*7)); echo bad >&2; exit 3", "timeout_seconds": 30})
    assert (reply["stdout"], reply["stderr"], reply["exit_code"]) == ("42\n", "bad\n", 3), reply
    assert reply["duration_ms"] >= 0, reply


def files():
    """What is moved in and out: text, bytes, an empty file, a link, a directory."""
    noise = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(40000))
    return {"top/note.txt": b"hello\n", "top/deep/er/noise": noise, "top/empty": b"", "top/link": "note.txt"}


def pack():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files().items():
            info = tarfile.TarInfo(name)
            info.mode = 0o644
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def archives(path):
    """An archive goes in, and comes out as it was."""
    raw = pack()
    reply = ask(path, {"action": "extract_archive", "destination": "/workspace/in", "archive_size": len(raw)}, raw)
    size = sum(len(c) for c in files().values() if isinstance(c, bytes))
    assert reply["destination"] == "/workspace/in" and reply["bytes_written"] == size, reply
    assert ask(path, {"command": "cat /workspace/in/top/link", "timeout_seconds": 30})["stdout"] == "hello\n"
    out = exchange(path, {"action": "export_archive", "path": "/workspace/in/top"})
    line, _, body = out.partition(b"\n")
    reply = json.loads(line)
    assert reply["artifact_type"] == "directory" and reply["archive_size"] == len(body), reply
    got = {}
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as tar:
        for member in tar:
            name = member.name.removeprefix("./").rstrip("/")
            name = name if name.startswith("top") else "top/" + name
            if member.issym():
                got[name] = member.linkname
            elif member.isfile():
                got[name] = tar.extractfile(member).read()
    assert got == files(), sorted(got)
    for body, size, text in ((raw[:-7], len(raw), "shorter"), (b"no gzip", 7, "gzip"), (raw + b"more", len(raw), "longer")):
        request = {"action": "extract_archive", "destination": "/workspace/bad", "archive_size": size}
        said = json.loads(exchange(path, request, body, end=True))
        assert text in said["error"], (text, said)



def service(path):
    """One that is ready once it answers, is reached by the same socket, and ends."""
    start = {
        "action": "start_service", "service_name": "site", "command": "exec python3 -m http.server 8123 --bind 127.0.0.1",
        "cwd": "/workspace/in/top", "readiness": {"type": "http", "url": "http://127.0.0.1:8123/note.txt"},
        "ready_timeout_seconds": 60, "ready_interval_ms": 100,
    }
    reply = ask(path, start)
    assert reply["state"] == "running" and reply["ready"], reply
    s = connect(path, 8123)
    with s:
        s.sendall(b"GET /note.txt HTTP/1.0\r\n\r\n")
        page = b"".join(iter(lambda: s.recv(65536), b""))
    assert page.endswith(b"\r\n\r\nhello\n"), page
    reply = insist(path, {"action": "logs_service", "service_name": "site", "tail_lines": 100})
    assert "GET /note.txt" in reply["stderr"] + reply["stdout"], reply
    return reply["started_at"]


def stop(path, started):
    """The service of before is the same after all that the daemon went through."""
    reply = insist(path, {"action": "status_service", "service_name": "site"})
    assert reply["state"] == "running" and reply["started_at"] == started and reply["restarts"] == 0, reply
    reply = ask(path, {"action": "stop_service", "service_name": "site"})
    assert reply["state"] == "stopped" and not reply["ready"], reply
    try:
        connect(path, 8123).close()
        raise AssertionError("the service answers after its end")
    except ConnectionRefusedError as e:
        assert "port 8123: nothing listens there" in str(e), e


def shell(path, lines):
    """A shell is read by a cursor while it writes, and the daemon may be killed: each
    byte comes once, and in order."""
    opened = ask(path, {"action": "open_shell", "shell_id": "main", "cwd": "/workspace", "cols": 120, "rows": 30})
    assert opened["state"] == "running" and opened["exit_code"] is None and opened["ended_at"] is None, opened
    count = "stty -echo; PS1=; i=0; while [ $i -lt %d ]; do i=$((i+1)); echo \"<$i>\"; [ $((i %% 10)) -gt 0 ] || sleep 0.05; done; echo over" % lines
    wrote = ask(path, {"action": "write_shell", "shell_id": "main", "input": count, "append_newline": True})
    assert wrote["input_length"] == len(count) and wrote["append_newline"], wrote
    print("shell", flush=True)
    text, cursor, late = "", 0, time.monotonic() + 300 * FACTOR
    while "\nover\r\n" not in text:
        assert time.monotonic() < late, text[-200:]
        reply = insist(path, {"action": "read_shell", "shell_id": "main", "cursor": cursor, "max_chars": 1000, "wait_ms": 1000})
        assert reply["cursor"] == cursor, reply
        cursor = reply["next_cursor"]
        text += reply["output"]
    begin = text.index("<1>\r\n")
    want = "".join("<%d>\r\n" % (i + 1) for i in range(lines)) + "over\r\n"
    assert text[begin:begin + len(want)] == want, "lost or doubled"
    again = insist(path, {"action": "read_shell", "shell_id": "main", "cursor": 0, "max_chars": 1 << 18})
    assert again["output"][:len(text)] == text[:len(again["output"])], "another reading is another text"
    raw = insist(path, {"action": "read_shell", "shell_id": "main", "cursor": 0, "max_chars": 1 << 18, "encoding": "base64"})
    assert base64.b64decode(raw["output"]).decode()[:len(text)] == text
    print("read", flush=True)
    sys.stdin.read()
    assert insist(path, {"action": "status_shell", "shell_id": "main"})["started_at"] == opened["started_at"]
    ask(path, {"action": "write_shell", "shell_id": "main", "input": "sleep 1000", "append_newline": True})
    late = time.monotonic() + 60 * FACTOR
    while ask(path, {"command": "ps ax -o args= | grep '[s]leep 1000'", "timeout_seconds": 30})["exit_code"]:
        assert time.monotonic() < late, "what was typed does not run"  # a busy shell reads it later
    ask(path, {"action": "signal_shell", "shell_id": "main", "signal": "INT"})
    ask(path, {"action": "write_shell", "shell_id": "main", "input": "printf '\\033[31mred\\033[0m\\n'", "append_newline": True})
    text, late = "", time.monotonic() + 60 * FACTOR
    while "red" not in text:
        assert time.monotonic() < late, text
        plain = insist(path, {"action": "read_shell", "shell_id": "main", "cursor": cursor, "max_chars": 1000, "plain": True, "wait_ms": 1000})
        cursor = plain["next_cursor"]
        text += plain["output"]
        assert "\033" not in text, text
    closed = ask(path, {"action": "close_shell", "shell_id": "main"})
    assert closed["closed"] and closed["state"] == "stopped" and closed["ended_at"] >= closed["started_at"], closed


def refused(path):
    """What is no request is answered in words."""
    for line, text in ((b"[]", "object"), (b"{", ""), (b"no", ""), (b'{"action": "rm"}', "action"), (b'{"command": "x", "y": 1}', "y")):
        said = json.loads(exchange(path, line, end=True))
        assert text in said["error"], said



def main(path, lines):
    for step in (run, archives, refused):
        step(path)
        print(step.__name__, flush=True)
    started = service(path)
    print("service", flush=True)
    shell(path, lines)
    stop(path, started)
    print("done", flush=True)


main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)

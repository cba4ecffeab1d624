# Opens files of a directory as it is told to, a line each: HOW NAME TIMES [OUTCOME...]. It goes on until these
# were seen as well, and answers each line with what was: "ok", and errors' names.
import ctypes, errno, os, signal, sys

libc = ctypes.CDLL(None, use_errno=True)


def call(function, *args):  # Python's own functions hide EINTR
    result = function(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def signalled(name):
    signal.setitimer(signal.ITIMER_REAL, 0.0002)
    return HOW["creat"](name)


def file_for_a_moment(name):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(name)
    return fd


def directory_for_a_moment(name):
    os.mkdir(name, 0o700)
    fd = os.open(name, os.O_RDONLY)
    os.rmdir(name)
    return fd


HOW = {
    "file": file_for_a_moment,
    "directory": directory_for_a_moment,
    "write": lambda name: os.open(name, os.O_RDWR),
    "list": lambda name: os.open(name, os.O_RDONLY),
    "creat": lambda name: call(libc.creat, name.encode(), 0o666),
    "make": lambda name: call(libc.open, name.encode(), os.O_RDWR | os.O_CREAT, 0o666),
    "read": lambda name: call(libc.open, name.encode(), os.O_RDONLY | os.O_CREAT, 0o666),
    "exclusive": lambda name: call(libc.open, name.encode(), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666),
    "signalled": signalled,
}


def come_to(how, name):
    try:
        os.close(HOW[how](name))
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok"


os.chdir(sys.argv[1])
signal.signal(signal.SIGALRM, lambda *_: None)
print("ready", flush=True)
for line in sys.stdin:
    how, name, times, *awaited = line.split()
    seen, times = set(), int(times)
    while times > 0 or not seen.issuperset(awaited):
        seen.add(come_to(how, name))
        times -= 1
    print(*sorted(seen), flush=True)

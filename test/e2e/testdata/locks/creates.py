# Opens files of a directory as it is told to, a line each: HOW NAME TIMES [OUTCOME...]. It goes on until these
# were seen as well, and answers each line with what was: "ok", and errors' names.
import ctypes, errno, os, sys

libc = ctypes.CDLL(None, use_errno=True)


def creat(name):
    f = libc.creat(name.encode(), 0o666)
    if f < 0:
        raise OSError(ctypes.get_errno(), name)
    return f


HOW = {
    "creat": creat,
    "make": lambda name: os.open(name, os.O_RDWR | os.O_CREAT, 0o666),
    "read": lambda name: os.open(name, os.O_RDONLY | os.O_CREAT, 0o666),
    "exclusive": lambda name: os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666),
}


def come_to(how, name):
    try:
        os.close(HOW[how](name))
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok"


os.chdir(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    how, name, times, *awaited = line.split()
    seen, times = set(), int(times)
    while times > 0 or not seen.issuperset(awaited):
        seen.add(come_to(how, name))
        times -= 1
    print(*sorted(seen), flush=True)

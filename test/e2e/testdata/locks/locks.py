# Takes and releases locks of one file as it is told to, a line each, and answers each
# line: "ok", or the error's name. Of "who" the answer is the kind of lock in the way. With lines
# as arguments it does what they say, and stays.
import errno, fcntl, os, signal, struct, sys

F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
FLOCK = "hh4xqqi4x"
OPEN = {"rw": os.O_RDWR, "r": os.O_RDONLY, "w": os.O_WRONLY}
KIND = {"ex": fcntl.F_WRLCK, "wait": fcntl.F_WRLCK, "sh": fcntl.F_RDLCK, "un": fcntl.F_UNLCK}
WHOLE = {"ex": fcntl.LOCK_EX | fcntl.LOCK_NB, "wait": fcntl.LOCK_EX, "sh": fcntl.LOCK_SH | fcntl.LOCK_NB, "un": fcntl.LOCK_UN}
files = {}


def do(call, op, start=0, length=0, how="rw"):
    if how not in files:
        files[how] = os.open(sys.argv[1], OPEN[how] | os.O_CLOEXEC)
    f = files[how]
    if call == "close":
        os.close(files.pop(how))
    elif call == "flock":
        fcntl.flock(f, WHOLE[op])
    elif op == "many":
        for at in range(0, 2 * length, 2):
            fcntl.fcntl(f, fcntl.F_SETLK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, at, 1, 0))
    elif op == "who":
        cmd = F_OFD_GETLK if call == "ofd" else fcntl.F_GETLK
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, 0, start, length, 0)
        kind = struct.unpack(FLOCK, fcntl.fcntl(f, cmd, asked))[0]
        return {v: k for k, v in KIND.items() if k != "wait"}[kind]
    else:
        cmds = (F_OFD_SETLK, F_OFD_SETLKW) if call == "ofd" else (fcntl.F_SETLK, fcntl.F_SETLKW)
        fcntl.fcntl(f, cmds[op == "wait"], struct.pack(FLOCK, KIND[op], 0, start, length, 0))
    return "ok"


def words_of(line):
    return [int(w) if w.isdigit() else w for w in line.split()]


for line in sys.argv[2:]:
    do(*words_of(line))
print("ready", flush=True)
while sys.argv[2:]:
    signal.pause()
for line in sys.stdin:
    words = words_of(line)
    if words[0] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        print(do(*words), flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)

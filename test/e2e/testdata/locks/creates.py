# Opens a file that it would make, while others make and remove it: creates.py FILE TIMES.
import os, sys

print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[2])):
    os.close(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666))
print("done", flush=True)

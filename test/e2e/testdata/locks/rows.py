# Writes rows to a database that others write to as well: rows.py FILE MODE NAME ROWS. Each
# transaction reads what it writes, so that one that is lost shows in the sum.
import sqlite3, sys

path, mode, name, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
db = sqlite3.connect(path, timeout=600, isolation_level=None)
got = db.execute("pragma journal_mode=" + mode).fetchone()[0]
if got != mode:
    sys.exit("it has " + got)
db.execute("pragma synchronous=off")
done = 0
while done < rows:
    batch = range(done, min(done + 10, rows))
    db.execute("begin immediate")
    for n in batch:
        db.execute("insert into rows values (?, ?)", (name, n))
        db.execute("update sum set n = n + 1")
    db.execute("commit")
    done = batch.stop
    db.execute("select count(*) from rows where name = ?", (name,)).fetchone()[0] == done or sys.exit("rows are gone")
print("done", flush=True)

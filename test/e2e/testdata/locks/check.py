# Makes the database of rows.py, or says what is in it: check.py FILE MODE [make].
import sqlite3, sys

db = sqlite3.connect(sys.argv[1], timeout=600, isolation_level=None)
if sys.argv[3:]:
    db.execute("pragma journal_mode=" + sys.argv[2])
    db.execute("create table rows (name text, n integer, primary key (name, n))")
    db.execute("create table sum (n integer)")
    db.execute("insert into sum values (0)")
    db.close()
else:
    print(db.execute("select count(*) from rows").fetchone()[0], db.execute("select n from sum").fetchone()[0],
          db.execute("pragma integrity_check").fetchone()[0])

"""duckdb.py work|check LAST: numbered transactions, each of which adds rows of its own and rewrites one table."""
import os
import sys

import duckdb

ROWS = 50
SLOTS = 400

db = duckdb.connect("work.db", config={"threads": 2})


def number():
    return db.execute("select coalesce(max(tx), 0) from ledger").fetchone()[0]


if sys.argv[1] == "check":
    last = int(sys.argv[2])
    if not db.execute("select 1 from duckdb_tables() where table_name = 'slot'").fetchone():
        assert last == 0, f"{last} was acknowledged, and there are no tables"
        sys.exit()
    found = number()
    assert found >= last, f"transaction {last} was acknowledged, {found} is the last"
    assert db.execute("select count(*) from ledger").fetchone()[0] == found
    wrong = db.execute(
        "select l.tx, l.sum, count(i.value), sum(i.value) from ledger l left join item i on i.tx = l.tx "
        f"group by l.tx, l.sum having count(i.value) <> {ROWS} or sum(i.value) <> l.sum"
    ).fetchall()
    assert not wrong, f"transactions in part: {wrong}"
    assert db.execute("select count(*) from item").fetchone()[0] == ROWS * found
    slots = db.execute("select min(tx), max(tx), count(*), min(length(text)), max(length(text)) from slot").fetchone()
    assert slots == (found, found, SLOTS, 200, 200), f"the last is {found}; lowest, highest, count of slots: {slots}"
    # Its index has what the table has.
    for tx in (1, found // 2, found):
        if tx:
            assert db.execute("select tx from ledger where tx = ?", [tx]).fetchone() == (tx,)
else:
    # Checkpoints come often.
    db.execute("set checkpoint_threshold = '300KB'")
    db.execute("begin")
    db.execute("create table if not exists ledger(tx bigint primary key, sum bigint)")
    db.execute("create table if not exists item(tx bigint, seq bigint, value bigint)")
    db.execute("create table if not exists slot(id bigint, tx bigint, text varchar)")
    if not db.execute("select 1 from slot limit 1").fetchone():
        db.execute(f"insert into slot select range, 0, repeat('0', 200) from range({SLOTS})")
    db.execute("commit")
    while True:
        n = number() + 1
        db.execute("begin")
        db.execute(f"insert into item select {n}, range, (range * 104729 + {n} * 7919) % 1000003 from range({ROWS})")
        db.execute("insert into ledger select ?, sum(value) from item where tx = ?", [n, n])
        db.execute("update slot set tx = ?, text = format('{:0200d}', ? + id)", [n, n])
        db.execute("commit")
        os.write(1, b"ack %d\n" % n)
        if n % 17 == 0:
            db.execute("force checkpoint")

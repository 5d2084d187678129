"""leveldb.py work|check LAST: numbered batches, each of which writes its number to 20 keys of its own and to one of all."""
import os
import sys

import plyvel

db = plyvel.DB("db", create_if_missing=True, write_buffer_size=100_000, max_file_size=100_000)


def number():
    return int(db.get(b"last") or 0)


if sys.argv[1] == "check":
    last, seen = number(), {}
    for key, value in db.iterator(prefix=b"k"):
        batch, place = key[1:].split(b".")
        assert value == b"%s.%s" % (batch, place) * 40, key
        seen.setdefault(int(batch), set()).add(int(place))
    assert last >= int(sys.argv[2]), f"batch {sys.argv[2]} was acknowledged, {last} is the last"
    assert sorted(seen) == list(range(1, last + 1)), f"batches {min(seen)} to {max(seen)}, {len(seen)} of them; the last is {last}"
    assert all(places == set(range(20)) for places in seen.values()), "part of a batch"
    print("last", last)
else:
    while True:
        n = number() + 1
        with db.write_batch(sync=True) as batch:
            for i in range(20):
                batch.put(b"k%d.%d" % (n, i), b"%d.%d" % (n, i) * 40)
            batch.put(b"last", b"%d" % n)
        os.write(1, b"ack %d\n" % n)
        if n % 40 == 0:
            db.compact_range()

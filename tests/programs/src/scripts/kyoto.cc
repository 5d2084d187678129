// kyoto hash|tree soft|hard work|check LAST: numbered transactions, each of which sets 20 records of its own, one of all, and
// removes old ones.
#include <kchashdb.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

using namespace kyotocabinet;
using std::string;

static const int RECORDS = 20;
static const long KEPT = 300;

static string key(long n, int i) { return "k" + std::to_string(n) + "." + std::to_string(i); }

static string value(long n, int i) {
    string text;
    for (int repeat = 0; repeat < 1 + (n + i) % 60; repeat++) text += key(n, i);
    return text;
}

template <class DB> static void die(DB &db, const string &what) {
    fprintf(stderr, "%s: %s: %s\n", what.c_str(), db.error().name(), db.error().message());
    exit(1);
}

template <class DB> static long last(DB &db) {
    string text;
    return db.get("last", &text) ? atol(text.c_str()) : 0;
}

template <class DB> static void work(DB &db, const char *path, bool hard) {
    if (!db.open(path, DB::OWRITER | DB::OCREATE)) die(db, "open");
    for (long n = last(db) + 1;; n++) {
        if (!db.begin_transaction(hard)) die(db, "begin_transaction");
        for (int i = 0; i < RECORDS; i++) {
            if (!db.set(key(n, i), value(n, i))) die(db, "set");
            if (n > KEPT && !db.remove(key(n - KEPT, i))) die(db, "remove");
        }
        if (!db.set("last", std::to_string(n))) die(db, "set");
        if (!db.end_transaction(true)) die(db, "end_transaction");
        if (!hard && !db.synchronize(true)) die(db, "synchronize");
        string line = "ack " + std::to_string(n) + "\n";
        if (write(1, line.data(), line.size()) < 0) exit(1);
        // It moves records, of which the log of the next transaction knows nothing: a power cut would mix the two.
        if (n % 50 == 0 && (!db.defrag(0) || !db.synchronize(true))) die(db, "defrag");
    }
}

template <class DB> static void check(DB &db, const char *path, long acknowledged) {
    if (access(path, F_OK) != 0 && acknowledged == 0) return;
    if (!db.open(path, DB::OWRITER | DB::OCREATE)) die(db, "open");
    long n = last(db);
    if (n < acknowledged) {
        fprintf(stderr, "%ld was acknowledged, %ld is the last\n", acknowledged, n);
        exit(1);
    }
    long first = n > KEPT ? n - KEPT + 1 : 1;
    string text;
    for (long at = first; at <= n; at++) {
        for (int i = 0; i < RECORDS; i++) {
            if (!db.get(key(at, i), &text)) die(db, key(at, i) + " of " + std::to_string(n));
            if (text != value(at, i)) {
                fprintf(stderr, "%s has another value\n", key(at, i).c_str());
                exit(1);
            }
        }
    }
    int64_t records = (n - first + 1) * RECORDS + (n > 0);
    if (db.count() != records) {
        fprintf(stderr, "%ld records, not %ld\n", (long)db.count(), (long)records);
        exit(1);
    }
    if (!db.close()) die(db, "close");
}

template <class DB> static int run(const char *path, char **argv) {
    DB db;
    if (string(argv[3]) == "check") {
        check(db, path, atol(argv[4]));
    } else {
        work(db, path, string(argv[2]) == "hard");
    }
    return 0;
}

int main(int, char **argv) {
    return string(argv[1]) == "hash" ? run<HashDB>("work.kch", argv) : run<TreeDB>("work.kct", argv);
}

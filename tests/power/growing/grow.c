/* Files that only grow, for power cuts: logs that are synced after each epoch, and small files, written and closed,
 * half of them synced before; and old files, each of which is opened, overwritten, synced and closed again and again,
 * so that its session lasts a moment; and edited files, in which each epoch overwrites a few bytes, and may append some,
 * so that they need no journal. All bytes are derived from numbers. `write FOLDER ROUND` reports on stdout what is
 * durable, until the power is cut; `check FOLDER ROUND commit|leave` reads the previous round's reports from stdin,
 * and checks that all of it is there, and nothing torn; after `leave`, for a small file whose SYNC did not return,
 * only whether it can be read. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOGS 3
#define LONGEST 20000
#define OLD 2
#define OLD_LENGTH 100000
#define EDITED 3
#define EDITED_LONGS 5000
#define EDITS 4

static unsigned long mix(unsigned long a, unsigned long b) {
  unsigned long x = a * 0x9e3779b97f4a7c15ul + b + 1;
  x ^= x >> 31, x *= 0xbf58476d1ce4e5b9ul, x ^= x >> 29;
  return x;
}

static size_t blob(unsigned long file, unsigned long number, char *to) {
  size_t length = 1 + mix(file, number) % LONGEST;
  for (size_t i = 0; i < length; i++) to[i] = (char)(mix(file ^ number, i / 8) >> (i % 8 * 8)) | 1;
  return length;
}

static void fail(const char *what, const char *name) {
  fprintf(stderr, "DAMAGED: %s: %s (%s)\n", name, what, strerror(errno));
  exit(1);
}

/* In a few pieces. */
static void put(int fd, const char *bytes, size_t length, const char *name) {
  for (size_t done = 0; done < length;) {
    size_t piece = 1 + mix(length, done) % length;
    if (piece > length - done) piece = length - done;
    if (write(fd, bytes + done, piece) != (ssize_t)piece) fail("write", name);
    done += piece;
  }
}

/* The epochs of a log, all of which must be complete. The first log is read epoch by epoch, which attaches to the
 * shared state (a session follows); the others at once, so that they go on growing without a journal. */
static unsigned long epochs(int fd, unsigned long log, const char *name, off_t *size) {
  static char expected[LONGEST];
  struct stat stat;
  if (fstat(fd, &stat) != 0) fail("stat", name);
  char *found = malloc(stat.st_size + LONGEST);
  if (found == NULL) fail("malloc", name);
  if (log != 0 && pread(fd, found, stat.st_size, 0) != stat.st_size) fail("read", name);
  unsigned long epoch = 0;
  for (*size = 0; *size < stat.st_size; epoch++) {
    size_t length = blob(log, epoch, expected);
    if (log == 0 && pread(fd, found + *size, length, *size) != (ssize_t)length) fail("a torn epoch", name);
    if (*size + (off_t)length > stat.st_size || memcmp(found + *size, expected, length) != 0) fail("a torn epoch", name);
    *size += length;
  }
  free(found);
  return epoch;
}

/* The number of the epoch of an old file, of which all of it must be. */
static unsigned long old_epoch(int fd, const char *name) {
  static unsigned long found[OLD_LENGTH / sizeof(long)];
  if (pread(fd, found, OLD_LENGTH, 0) != OLD_LENGTH) fail("read", name);
  for (size_t i = 0; i < OLD_LENGTH / sizeof(long); i++)
    if (found[i] != found[0]) fail("a torn epoch", name);
  return found[0];
}

/* Every other epoch, an ordinary file is synced in the middle: the file system then commits what it has done so far, such
 * as the mark, before the journal has the records. */
static void write_old(int fd, unsigned long epoch, const char *name) {
  static unsigned long bytes[OLD_LENGTH / sizeof(long)];
  for (size_t i = 0; i < OLD_LENGTH / sizeof(long); i++) bytes[i] = epoch;
  if (pwrite(fd, bytes, OLD_LENGTH, 0) != OLD_LENGTH) fail("write", name);
  if (epoch % 2 == 0) {
    static char ordinary[520];
    snprintf(ordinary, sizeof ordinary, "%s.ordinary", name);
    int other = open(ordinary, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (other < 0 || write(other, "x", 1) != 1 || fsync(other) != 0 || close(other) != 0) fail("sync", ordinary);
  }
  if (fsync(fd) != 0) fail("fsync", name);
}

/* The place of the n-th edit of an epoch; the first is always at the beginning. */
static size_t edited_at(unsigned long file, unsigned long epoch, int n) {
  return n == 0 ? 0 : 1 + mix(file * 100 + n, epoch) % (EDITED_LONGS - 1);
}

/* How many numbers an epoch appends to an edited file. */
static size_t appended(unsigned long file, unsigned long epoch) {
  return epoch % 3 == 0 ? mix(file, epoch) % 300 : 0;
}

/* The epoch of an edited file, of which all of it must be, and of each before it. */
static unsigned long edited_epoch(int fd, unsigned long file, const char *name) {
  struct stat stat;
  if (fstat(fd, &stat) != 0) fail("stat", name);
  unsigned long *found = calloc(stat.st_size + EDITED_LONGS, 8), *expected = calloc(stat.st_size + EDITED_LONGS, 8);
  if (found == NULL || expected == NULL) fail("calloc", name);
  if (pread(fd, found, stat.st_size, 0) != stat.st_size) fail("read", name);
  size_t length = EDITED_LONGS;
  unsigned long last = found[0];
  for (unsigned long epoch = 1; epoch <= last; epoch++) {
    for (int n = 0; n < EDITS; n++) expected[edited_at(file, epoch, n)] = epoch;
    for (size_t end = length + appended(file, epoch); length < end && length * 8 < (size_t)stat.st_size; length++)
      expected[length] = epoch;
  }
  if ((size_t)stat.st_size != length * 8 || memcmp(found, expected, length * 8) != 0) fail("a torn epoch", name);
  free(found), free(expected);
  return last;
}

static void edit(int fd, unsigned long file, unsigned long epoch, const char *name) {
  unsigned long more[300];
  struct stat stat;
  for (int n = EDITS - 1; n >= 0; n--)
    if (pwrite(fd, &epoch, 8, edited_at(file, epoch, n) * 8) != 8) fail("write", name);
  size_t length = appended(file, epoch);
  for (size_t i = 0; i < length; i++) more[i] = epoch;
  if (fstat(fd, &stat) != 0 || pwrite(fd, more, length * 8, stat.st_size) != (ssize_t)length * 8) fail("append", name);
}

static void name_of(char *name, const char *folder, const char *kind, unsigned long round, unsigned long number) {
  snprintf(name, 500, "%s/%s-%lu-%lu", folder, kind, round, number);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const char *folder = argv[2];
  unsigned long round = strtoul(argv[3], NULL, 10);
  static char bytes[LONGEST], found[LONGEST + 1], name[500];
  if (strcmp(argv[1], "check") == 0) {
    unsigned long acked[LOGS] = {0}, old[OLD] = {0}, edited[EDITED] = {0}, small = 0, r, number;
    char kind[10];
    while (scanf("%9s %lu %lu", kind, &r, &number) == 3) {
      if (strcmp(kind, "log") == 0 && r < LOGS) acked[r] = number;
      if (strcmp(kind, "old") == 0 && r < OLD) old[r] = number;
      if (strcmp(kind, "edited") == 0 && r < EDITED) edited[r] = number;
      if (strcmp(kind, "small") == 0 && r == round && number + 1 > small) small = number + 1;
    }
    for (unsigned long log = 0; log < LOGS; log++) {
      off_t size;
      name_of(name, folder, "log", 0, log);
      int fd = open(name, O_RDONLY);
      if (fd < 0 && acked[log] > 0) fail("a log that was synced is not there", name);
      if (fd < 0) continue;
      unsigned long there = epochs(fd, log, name, &size);
      if (there < acked[log]) fail("epochs that were synced are not there", name);
      printf("%s: %lu epochs, %lu acknowledged\n", name, there, acked[log]);
      close(fd);
    }
    for (number = 0; number < OLD; number++) {
      name_of(name, folder, "old", 0, number);
      int fd = open(name, O_RDONLY);
      struct stat stat;
      if (fd < 0 && old[number] > 0) fail("an old file is not there", name);
      if (fd < 0 || fstat(fd, &stat) != 0 || (stat.st_size == 0 && old[number] == 0)) continue;
      unsigned long there = old_epoch(fd, name);
      if (there < old[number]) fail("an epoch that was synced is not there", name);
      printf("%s: epoch %lu, %lu acknowledged\n", name, there, old[number]);
      close(fd);
    }
    for (number = 0; number < EDITED; number++) {
      name_of(name, folder, "edited", 0, number);
      int fd = open(name, O_RDONLY);
      struct stat stat;
      if (fd < 0 && edited[number] > 0) fail("an edited file is not there", name);
      if (fd < 0 || fstat(fd, &stat) != 0 || (stat.st_size == 0 && edited[number] == 0)) continue;
      unsigned long there = edited_epoch(fd, number, name);
      if (there < edited[number]) fail("an epoch that was synced is not there", name);
      printf("%s: epoch %lu, %lu acknowledged\n", name, there, edited[number]);
      close(fd);
    }
    unsigned long whole = 0, empty = 0;
    int leaves = argc > 4 && strcmp(argv[4], "leave") == 0;
    for (number = 0; number < small + 5; number++) {
      name_of(name, folder, "small", round, number);
      int fd = open(name, O_RDONLY);
      int is_left = leaves && (number % 2 != 0 || number >= small);
      if (fd < 0 && number < small && !is_left) fail("a file that was closed is not there", name);
      if (fd < 0) continue;
      size_t length = blob(100 + round, number, bytes);
      ssize_t got = read(fd, found, sizeof found);
      if (got == 0 && number < small && !is_left) fail("a file that was closed is empty", name);
      if (got != 0 && !is_left && (got != (ssize_t)length || memcmp(found, bytes, length) != 0)) fail("a torn file", name);
      whole += got != 0, empty += got == 0;
      close(fd);
    }
    printf("round %lu: %lu small files whole, %lu empty, %lu acknowledged\n", round, whole, empty, small);
    return 0;
  }
  int logs[LOGS];
  unsigned long next[LOGS];
  for (unsigned long log = 0; log < LOGS; log++) {
    off_t size;
    name_of(name, folder, "log", 0, log);
    if ((logs[log] = open(name, O_RDWR | O_CREAT, 0600)) < 0) fail("open", name);
    next[log] = epochs(logs[log], log, name, &size);
    if (lseek(logs[log], size, SEEK_SET) != size) fail("lseek", name);
  }
  for (unsigned long i = 0;; i++) {
    unsigned long log = i % LOGS;
    size_t length = blob(log, next[log], bytes);
    put(logs[log], bytes, length, "a log");
    if (fsync(logs[log]) != 0) fail("fsync", "a log");
    printf("log %lu %lu\n", log, ++next[log]), fflush(stdout);
    name_of(name, folder, "old", 0, i % OLD);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) fail("open", name);
    unsigned long epoch = stat.st_size == 0 ? 1 : old_epoch(fd, name) + 1;
    write_old(fd, epoch, name);
    printf("old %lu %lu\n", i % OLD, epoch), fflush(stdout);
    if (close(fd) != 0) fail("close", name);
    /* One to three epochs each time that it is open; the last is not synced before the close, now and then. */
    unsigned long file = i % EDITED;
    name_of(name, folder, "edited", 0, file);
    fd = open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || fstat(fd, &stat) != 0) fail("open", name);
    if (stat.st_size == 0) {
      static char zeros[EDITED_LONGS * 8];
      if (pwrite(fd, zeros, sizeof zeros, 0) != sizeof zeros || fsync(fd) != 0) fail("write", name);
    }
    epoch = edited_epoch(fd, file, name);
    for (unsigned long last = epoch + 1 + i % 3; epoch < last;) {
      edit(fd, file, ++epoch, name);
      if (epoch == last && i % 4 == 0) break;
      if (fsync(fd) != 0) fail("fsync", name);
      printf("edited %lu %lu\n", file, epoch), fflush(stdout);
    }
    if (close(fd) != 0) fail("close", name);
    printf("edited %lu %lu\n", file, epoch), fflush(stdout);
    name_of(name, folder, "small", round, i);
    fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) fail("open", name);
    put(fd, bytes, length = blob(100 + round, i, bytes), name);
    if (i % 2 == 0 && fsync(fd) != 0) fail("fsync", name);
    if (close(fd) != 0) fail("close", name);
    printf("small %lu %lu\n", round, i), fflush(stdout);
  }
}

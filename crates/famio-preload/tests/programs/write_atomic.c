/* Writes that are each atomic and durable. Arguments: the atomic file, the case, how to ask for it. */
#include "check.h"
#include <aio.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { RWF_DURABLE = 2, RWF_WHOLE = 64, STATX_WHOLE = 0x10000, STATX_ATTR_WHOLE = 0x400000 };
enum { THREADS = 4, COMMON = 1 << 16, OWN = 1 << 18, BYTES = OWN / 2 };

static const char *path, *how;

static bool is(const char *word) { return strcmp(how, word) == 0; }

static int open_so(int flags) {
  int fd = open(path, O_RDWR | flags | (is("O_DSYNC") ? O_DSYNC : is("O_SYNC") ? O_SYNC : 0), 0600);
  CHECK(fd >= 0);
  return fd;
}

/* One write of `bytes` bytes, filled with `value`. */
static ssize_t put(int fd, uint64_t value, size_t bytes, off_t offset) {
  static _Thread_local uint64_t buffer[BYTES / 8];
  for (size_t i = 0; i < bytes / 8; i++) buffer[i] = value;
  struct iovec all = {buffer, bytes};
  if (is("RWF_DSYNC")) return pwritev2(fd, &all, 1, offset, RWF_DURABLE);
  if (is("RWF_ATOMIC")) return pwritev2(fd, &all, 1, offset, RWF_WHOLE);
  return pwrite(fd, buffer, bytes, offset);
}

static int shared;

/* Each thread writes to its own place, and all to a common one; finished writes are reported on stdout. */
static void *writes(void *argument) {
  uint64_t thread = (uint64_t)(uintptr_t)argument;
  int fd = thread % 2 ? shared : open_so(0);
  for (uint64_t round = 1;; round++) {
    CHECK(put(fd, round, BYTES, COMMON * 4 + (off_t)thread * OWN) == BYTES);
    uint64_t told[2] = {thread, round};
    CHECK(write(1, told, sizeof told) == sizeof told);
    CHECK(put(fd, thread << 32 | round, COMMON, 0) == COMMON);
  }
  return NULL;
}

static int forever(void) {
  shared = open_so(O_CREAT);
  CHECK(ftruncate(shared, COMMON * 4 + THREADS * OWN) == 0 && fsync(shared) == 0);
  pthread_t all[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&all[i], NULL, writes, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
  return 0;
}

/* What is there after a kill of the process that made the calls. */
static void killed(void (*calls)(int fd), const char *wanted, size_t bytes) {
  unlink(path);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int fd = open_so(O_CREAT);
    /* The session exists, so that a later call is not the first one. */
    CHECK(pwrite(fd, "....", 4, 0) == 4 && fsync(fd) == 0);
    calls(fd);
    kill(getpid(), SIGKILL);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  char found[2048];
  int fd = open(path, O_RDONLY);
  ssize_t n = read(fd, found, sizeof found);
  if (n != (ssize_t)bytes || memcmp(found, wanted, bytes) != 0) {
    fprintf(stderr, "%zd bytes: %.*s, not %s\n", n, (int)n, found, wanted);
    CHECK(!"what was written is there");
  }
  CHECK(close(fd) == 0);
}

static void one_write(int fd) { CHECK(put(fd, 0x4141414141414141, 512, 512) == 512); }
static void over(int fd) { CHECK(pwrite(fd, "abc", 3, 1) == 3); }
static void positions(int fd) {
  CHECK(lseek(fd, 2, SEEK_SET) == 2 && write(fd, "x", 1) == 1 && write(fd, "y", 1) == 1 && lseek(fd, 0, SEEK_CUR) == 4);
}
static void vectors(int fd) {
  struct iovec parts[3] = {{"a", 1}, {"", 0}, {"bc", 2}};
  CHECK(pwritev(fd, parts, 3, 1) == 3 && lseek(fd, 3, SEEK_SET) == 3 && writev(fd, parts, 3) == 3);
}
static void appends(int fd) {
  CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && write(fd, "one", 3) == 3 && pwrite(fd, "two", 3, 0) == 3);
  CHECK(lseek(fd, 0, SEEK_CUR) == 7);
}
static void asynchronous(int fd) {
  char byte = 'q';
  struct aiocb block = {.aio_fildes = fd, .aio_buf = &byte, .aio_nbytes = 1, .aio_offset = 3};
  block.aio_sigevent.sigev_notify = SIGEV_NONE;
  CHECK(aio_write(&block) == 0);
  while (aio_error(&block) == EINPROGRESS) continue;
  CHECK(aio_return(&block) == 1);
}
static void sizes(int fd) { CHECK(ftruncate(fd, 2) == 0); }
static void zeros(int fd) {
  CHECK(pwrite(fd, "1234567", 7, 0) == 7 && ftruncate(fd, 3) == 0 && posix_fallocate(fd, 0, 5) == 0);
}
static void copies(int fd) {
  int from = open("source", O_RDWR | O_CREAT | O_TRUNC, 0600);
  off_t at = 0, to = 1;
  CHECK(from >= 0 && write(from, "copied", 6) == 6 && copy_file_range(from, &at, fd, &to, 3, 0) == 3);
  CHECK(close(from) == 0 && unlink("source") == 0);
}
static void cut_at_open(int fd) {
  (void)fd;
  CHECK(open(path, O_RDWR | O_TRUNC) >= 0);
}
static void by_path(int fd) {
  (void)fd;
  CHECK(truncate(path, 1) == 0);
}
/* Beside others that have not synced: a SYNC covers the whole file. */
static void beside(int fd) {
  int plain = open(path, O_RDWR);
  CHECK(plain >= 0 && pwrite(plain, "z", 1, 0) == 1 && pwrite(fd, "abc", 3, 1) == 3);
}
static void stored(int fd) {
  char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && pwrite(fd, "a", 1, 0) == 1);
  CHECK(map[0] == 'a');
  map[1] = 'b'; /* with the next call */
  CHECK(pwrite(fd, "c", 1, 2) == 1);
}

static int calls(void) {
  char wide[1024] = "....";
  memset(wide + 512, 'A', 512);
  killed(one_write, wide, sizeof wide);
  if (is("RWF_DSYNC") || is("RWF_ATOMIC")) return 0;
#define KILLED(calls, wanted) killed(calls, wanted, sizeof wanted - 1)
  KILLED(over, ".abc");
  KILLED(positions, "..xy");
  KILLED(vectors, ".ababc");
  KILLED(appends, "....onetwo");
  KILLED(asynchronous, "...q");
  KILLED(sizes, "..");
  KILLED(zeros, "123\0\0");
  KILLED(copies, ".cop");
  KILLED(beside, "zabc");
  KILLED(stored, "abc.");
  if (is("write")) {
    KILLED(cut_at_open, "");
    KILLED(by_path, ".");
  }
  CHECK(unlink(path) == 0);
  return 0;
}

/* The limits in `statx`, and what `pwritev2` then accepts. */
static int limits(void) {
  unlink(path);
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && pwrite(fd, "....", 4, 0) == 4);
  struct {
    uint32_t mask, blksize;
    uint64_t attributes;
    uint32_t rest[4];
    uint64_t more[2], blocks, attributes_mask;
    uint64_t others[13];
    uint32_t unit_min, unit_max, segments_max, dio_read, unit_max_opt;
    uint32_t end[17];
  } seen;
  CHECK(__builtin_offsetof(__typeof__(seen), attributes_mask) == 0x38);
  CHECK(__builtin_offsetof(__typeof__(seen), unit_min) == 0xa8 && sizeof seen == 256);
  memset(&seen, 0xee, sizeof seen);
  CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_WHOLE | STATX_SIZE, (struct statx *)&seen) == 0);
  CHECK(seen.mask & STATX_WHOLE && seen.attributes & STATX_ATTR_WHOLE && seen.attributes_mask & STATX_ATTR_WHOLE);
  CHECK(seen.unit_min == 512 && seen.unit_max == 1 << 20 && seen.segments_max == 1);
  memset(&seen, 0xee, sizeof seen);
  CHECK(statx(AT_FDCWD, path, 0, STATX_WHOLE, (struct statx *)&seen) == 0 && seen.unit_max == 1 << 20);
  /* It was not asked for. */
  CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, (struct statx *)&seen) == 0 && !(seen.mask & STATX_WHOLE));

  char *buffer;
  CHECK(posix_memalign((void **)&buffer, 4096, 2 << 20) == 0);
  memset(buffer, 'w', 2 << 20);
  struct iovec one = {buffer, 4096}, two[2] = {{buffer, 2048}, {buffer + 2048, 2048}};
  CHECK(pwritev2(fd, &one, 1, 8192, RWF_WHOLE) == 4096);
  FAILS(pwritev2(fd, &one, 1, 8192 + 512, RWF_WHOLE), EINVAL);
  FAILS(pwritev2(fd, two, 2, 8192, RWF_WHOLE), EINVAL);
  for (size_t bytes = 256; bytes <= 2 << 20; bytes *= 2) {
    one.iov_len = bytes;
    if (bytes < 512 || bytes > 1 << 20)
      FAILS(pwritev2(fd, &one, 1, 2 << 20, RWF_WHOLE), EINVAL);
    else
      CHECK(pwritev2(fd, &one, 1, 2 << 20, RWF_WHOLE) == (ssize_t)bytes);
  }
  one.iov_len = 1536;
  FAILS(pwritev2(fd, &one, 1, 0, RWF_WHOLE), EINVAL);
  /* At the position, which is a valid place; and if a part cannot be read, nothing is written. */
  one.iov_len = 1024;
  CHECK(lseek(fd, 100, SEEK_SET) == 100);
  FAILS(pwritev2(fd, &one, 1, -1, RWF_WHOLE), EINVAL);
  CHECK(lseek(fd, 1024, SEEK_SET) == 1024 && pwritev2(fd, &one, 1, -1, RWF_WHOLE) == 1024 && lseek(fd, 0, SEEK_CUR) == 2048);
  char *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(hole != MAP_FAILED && munmap(hole + 4096, 4096) == 0);
  memset(hole, 'h', 4096);
  struct iovec bad = {hole, 8192};
  char byte;
  FAILS(pwritev2(fd, &bad, 1, 8192, RWF_WHOLE), EFAULT);
  CHECK(pread(fd, &byte, 1, 8192) == 1 && byte == 'w');
  /* If only durability is asked for, a shorter write is also right. */
  CHECK(pwritev2(fd, &bad, 1, 8192, RWF_DURABLE) == 4096 && pread(fd, &byte, 1, 8192) == 1 && byte == 'h');
  one.iov_len = 4096;
  FAILS(preadv2(fd, &one, 1, 0, RWF_WHOLE), EOPNOTSUPP);
  /* Direct, as databases do. */
  int direct = open(path, O_RDWR | O_DIRECT);
  if (direct >= 0) CHECK(pwritev2(direct, &one, 1, 4096, RWF_WHOLE | RWF_DURABLE) == 4096 && close(direct) == 0);
  int reads = open(path, O_RDONLY);
  FAILS(pwritev2(reads, &one, 1, 0, RWF_WHOLE), EBADF);
  CHECK(close(reads) == 0 && close(fd) == 0 && unlink(path) == 0);
  return 0;
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  path = argv[1], how = argv[3];
  if (strcmp(argv[2], "forever") == 0) return forever();
  if (strcmp(argv[2], "limits") == 0) return limits();
  return calls();
}

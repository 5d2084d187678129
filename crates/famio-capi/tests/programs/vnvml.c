/* The interface of vNVML: its effects, and every error that nv_init(3) names. */
#define _GNU_SOURCE
#include <famio.h>
#include <famio_vnvml.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

#define PAGE 4096
#define SIZE (8 * PAGE)

static void ok(int line, int result) {
  if (result != 0) {
    printf("line %d: %s\n", line, nverrmsg());
    failed = 1;
  }
}
#define OK(call) ok(__LINE__, call)

/* A region that must be possible. */
static char *region(int line, const char *path, size_t size, int kind) {
  char *region = nv_allocate(path, size, kind);
  if (region == NULL) {
    printf("line %d: %s: %s\n", line, path, nverrmsg());
    fflush(stdout);
    _exit(1);
  }
  return region;
}
#define REGION(path, size, kind) region(__LINE__, path, size, kind)

/* Whether the file has these bytes, durably: as another process without Famio sees them once nobody uses it. */
static int has(const char *path, const char *bytes, off_t at) {
  char found[64] = {0};
  size_t length = strlen(bytes);
  int fd = open(path, O_RDONLY);
  ssize_t read = pread(fd, found, length, at);
  close(fd);
  return read == (ssize_t)length && memcmp(found, bytes, length) == 0;
}

/* Runs in a forked child, which must succeed. */
static void in_child(int line, void (*work)(void *), void *of) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    failed = 0;
    work(of);
    fflush(stdout);
    _exit(failed);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    printf("line %d: the child ended with %d\n", line, status);
    failed = 1;
  }
}
#define IN_CHILD(work, of) in_child(__LINE__, work, of)

/* What is found stays; what is stored by pointer is not durable; what is written and committed is. */
static void private_regions(void) {
  int fd = open("one", O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(write(fd, "found", 5) == 5 && close(fd) == 0);
  OK(nv_init(NULL));
  char *one = REGION("one", SIZE, NV_PRIVATE);
  CHECK(memcmp(one, "found\0", 6) == 0 && one[SIZE - 1] == 0);
  memcpy(one + PAGE, "stored", 6);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, one + 2 * PAGE, "written", 7));
  CHECK(memcmp(one + 2 * PAGE, "written", 7) == 0); /* at once */
  OK(nv_commit(tx));
  CHECK(memcmp(one + 2 * PAGE, "written", 7) == 0 && memcmp(one + PAGE, "stored", 6) == 0);
  tx = nv_txbegin();
  OK(nv_commit(tx)); /* of nothing */
  OK(nv_free(one));
  CHECK(has("one", "found", 0) && has("one", "written", 2 * PAGE) && !has("one", "stored", PAGE));
  /* A region of a part of the file: the rest stays. */
  one = REGION("one", 10, NV_PRIVATE);
  CHECK(memcmp(one, "found\0", 6) == 0);
  OK(nv_free(one));
  struct stat stat;
  CHECK(lstat("one", &stat) == 0 && stat.st_size == SIZE);
  OK(nv_release());
}

/* An abort restores what nv_write has changed, in the order of the writes, and nothing else. */
static void aborted(void) {
  OK(nv_init(NULL));
  char *one = REGION("one", SIZE, NV_PRIVATE), *two = REGION("two", SIZE, NV_PRIVATE);
  memcpy(one, "before", 6);
  memcpy(one + 100, "stays", 5);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, one, "first.", 6));
  OK(nv_write(tx, one + 3, "second", 6));
  OK(nv_write(tx, two + SIZE - 3, "end", 3));
  memcpy(one + 100, "later", 5); /* by pointer */
  CHECK(memcmp(one, "firsecond", 9) == 0);
  OK(nv_abort(tx));
  CHECK(memcmp(one, "before\0\0\0", 9) == 0 && memcmp(one + 100, "later", 5) == 0 && two[SIZE - 3] == 0);
  OK(nv_release());
  CHECK(has("one", "found", 0) && !has("two", "end", SIZE - 3));
}

/* A transaction of two regions; and many writes, some over others. */
static void several_regions(void) {
  OK(nv_init(NULL));
  char *one = REGION("one", SIZE, NV_PRIVATE), *two = REGION("two", SIZE, NV_SHARED);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, one, "both.", 5));
  OK(nv_write(tx, two, "of them", 7));
  CHECK(memcmp(one, "both.", 5) == 0 && two[0] == 0); /* a shared one shows it from the commit on */
  OK(nv_commit(tx));
  CHECK(memcmp(two, "of them", 7) == 0);
  tx = nv_txbegin();
  for (uint32_t i = 0; i < 2000; i++) {
    OK(nv_write(tx, one + i * 16 % SIZE, &i, sizeof i));
    OK(nv_write(tx, two + i * 12 % SIZE, &i, sizeof i));
  }
  static char expected[2][SIZE];
  memcpy(expected[0], one, SIZE);
  memcpy(expected[1], two, SIZE);
  for (uint32_t i = 0; i < 2000; i++) memcpy(expected[1] + i * 12 % SIZE, &i, sizeof i);
  OK(nv_commit(tx));
  CHECK(memcmp(expected[1], two, SIZE) == 0);
  OK(nv_free(one));
  OK(nv_free(two));
  /* Once more: a region is private in one process and shared in another, but not at once. */
  one = REGION("one", SIZE, NV_SHARED);
  two = REGION("two", SIZE, NV_PRIVATE);
  CHECK(memcmp(expected[0], one, SIZE) == 0 && memcmp(expected[1], two, SIZE) == 0);
  OK(nv_release());
}

static void another_process(void *of) {
  (void)of;
  OK(nv_init(NULL));
  char *there = REGION("shared", SIZE, NV_SHARED);
  CHECK(memcmp(there, "parent", 6) == 0);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, there + PAGE, "child", 5));
  OK(nv_write(tx, there + 2 * PAGE, "child", 5));
  OK(nv_commit(tx));
  CHECK(memcmp(there + PAGE, "child", 5) == 0);
  FAILS(nv_allocate("shared", SIZE, NV_PRIVATE), EBUSY);
  FAILS(nv_allocate("alone", SIZE, NV_SHARED), EBUSY);
  FAILS(nv_allocate("alone", SIZE, NV_PRIVATE), EBUSY);
  OK(nv_release());
}

static void shared_regions(void) {
  OK(nv_init(NULL));
  char *here = REGION("shared", SIZE, NV_SHARED), *alone = REGION("alone", SIZE, NV_PRIVATE);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, here, "parent", 6));
  OK(nv_commit(tx));
  char *again = REGION("shared", PAGE, NV_SHARED);
  FAILS(nv_allocate("shared", SIZE, NV_PRIVATE), EBUSY);
  FAILS(nv_allocate("alone", SIZE, NV_SHARED), EBUSY);
  FAILS(nv_allocate("alone", SIZE, NV_PRIVATE), EBUSY);
  CHECK(memcmp(again, "parent", 6) == 0);
  IN_CHILD(another_process, NULL);
  CHECK(memcmp(here + PAGE, "child", 5) == 0 && memcmp(here + 2 * PAGE, "child", 5) == 0);
  tx = nv_txbegin();
  OK(nv_write(tx, here, "PARENT", 6));
  OK(nv_abort(tx));
  CHECK(memcmp(here, "parent", 6) == 0 && memcmp(again, "parent", 6) == 0 && alone[0] == 0);
  OK(nv_release());
}

/* This program's own memory, without pages of files, in bytes. */
static long own_memory(void) {
  char line[256];
  long found = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL) sscanf(line, "RssAnon: %ld", &found);
  if (status != NULL) fclose(status);
  return found * 1024;
}

/* Only committed bytes leave memory, and what is stored by pointer stays there. */
static void trimmed(void) {
  size_t size = 16 << 20, half = size / 2;
  OK(nv_init(NULL));
  char *large = REGION("large", size, NV_PRIVATE), *bytes = malloc(size);
  CHECK(nv_trim(large) == 0);
  for (size_t i = 0; i < size; i++) bytes[i] = (char)(i * 7 + i / PAGE);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, large, bytes, half));
  FAILS(nv_trim(large), EBUSY);
  OK(nv_commit(tx));
  large[5 * PAGE] ^= 1;                     /* a page that differs from the file, */
  memcpy(large + half, bytes + half, PAGE); /* and one that the file never gets */
  char *old = malloc(PAGE);
  memcpy(old, bytes + 6 * PAGE, PAGE);
  tx = nv_txbegin();
  OK(nv_write(tx, large + 6 * PAGE, "new", 3));
  OK(nv_commit(tx));
  memcpy(large + 6 * PAGE, old, PAGE); /* back to what the file had, by pointer */
  CHECK(nv_trim(large) == (ssize_t)(half - 2 * PAGE));
  CHECK(nv_trim(large) == 0);
  CHECK(large[5 * PAGE] == (bytes[5 * PAGE] ^ 1) && memcmp(large + 6 * PAGE, old, PAGE) == 0);
  large[5 * PAGE] ^= 1;
  CHECK(memcmp(large, bytes, half + PAGE) == 0 && large[half + PAGE] == 0);
  /* Pages that were dropped are written to again, and an abort finds what they had. */
  tx = nv_txbegin();
  OK(nv_write(tx, large + 10 * PAGE, "aborted", 7));
  OK(nv_abort(tx));
  CHECK(memcmp(large, bytes, half) == 0);
  tx = nv_txbegin();
  OK(nv_write(tx, large + 10 * PAGE, "committed", 9));
  OK(nv_commit(tx));
  CHECK(nv_trim(large) > 0 && memcmp(large + 10 * PAGE, "committed", 9) == 0);
  CHECK(memcmp(large + 10 * PAGE + 9, bytes + 10 * PAGE + 9, PAGE) == 0);
  /* A thread that has nothing else to do writes 64 MiB: copies are dropped without being asked for. */
  long least = 0, most = 0;
  for (int i = 0; i < 9; i++) {
    tx = nv_txbegin();
    OK(nv_write(tx, large, bytes, half));
    OK(nv_commit(tx));
    long now = own_memory();
    if (i < 2 || now < least) least = now;
    if (i < 2 || now > most) most = now;
  }
  CHECK(most - least > (long)half / 2);
  CHECK(memcmp(large, bytes, half + PAGE) == 0);
  char *shared = REGION("shared", SIZE, NV_SHARED);
  CHECK(nv_trim(shared) == 0); /* its memory is the file's */
  OK(nv_release());
  CHECK(unlink("large") == 0);
  free(bytes);
  free(old);
}

/* Larger than the memory of most machines, in which it takes as much as was stored. */
static void huge(void) {
  size_t size = (size_t)1 << 37;
  OK(nv_init(NULL));
  char *huge = REGION("huge", size, NV_PRIVATE);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, huge, "first", 5));
  OK(nv_write(tx, huge + size - 4, "last", 4));
  OK(nv_commit(tx));
  huge[size / 2] = 1;
  CHECK(nv_trim(huge) == 2 * PAGE && huge[size / 2] == 1);
  CHECK(memcmp(huge, "first", 5) == 0 && memcmp(huge + size - 4, "last", 4) == 0);
  OK(nv_release());
  CHECK(has("huge", "first", 0) && has("huge", "last", (off_t)size - 4) && unlink("huge") == 0);
}

static void not_ready(void) {
  FAILS(nv_release(), ENOTCONN);
  FAILS(nv_allocate("one", SIZE, NV_SHARED), ENOTCONN);
  FAILS(nv_txbegin(), ENOTCONN);
  FAILS(nv_free(&failed), ENOTCONN);
  FAILS(nv_init("no such folder"), ENOENT);
  FAILS(nv_init("one"), ENOTDIR);
  FAILS(nv_init(bad), EFAULT);
  OK(nv_init(NULL));
  FAILS(nv_init(NULL), EISCONN);
  OK(nv_release());
  FAILS(nv_release(), ENOTCONN);
}

static void no_region(void) {
  OK(nv_init(NULL));
  FAILS(nv_allocate("one", 0, NV_SHARED), EINVAL);
  FAILS(nv_allocate("one", SIZE, 3), EINVAL);
  FAILS(nv_allocate(NULL, SIZE, NV_SHARED), EFAULT);
  FAILS(nv_allocate(bad, SIZE, NV_SHARED), EFAULT);
  FAILS(nv_allocate("no/such/folder", SIZE, NV_SHARED), ENOENT);
  FAILS(nv_allocate(".", SIZE, NV_SHARED), ENODEV);
  CHECK(mkfifo("pipe", 0600) == 0);
  FAILS(nv_allocate("pipe", SIZE, NV_PRIVATE), ENODEV);
  FAILS(nv_allocate("/dev/zero", SIZE, NV_SHARED), ENODEV);
  FAILS(nv_allocate("/proc/self/comm", 1, NV_PRIVATE), EOPNOTSUPP);
  CHECK(unlink("pipe") == 0);
  FAILS(nv_allocate("one", (size_t)1 << 48, NV_SHARED), EFBIG);
  if (getenv("ON_DISK")) FAILS(nv_allocate("one", (size_t)1 << 46, NV_PRIVATE), EFBIG);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit, before;
  CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
  limit = before;
  limit.rlim_cur = 1 << 30;
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  FAILS(nv_allocate("one", (size_t)2 << 30, NV_SHARED), EFBIG);
  CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
  struct stat stat;
  CHECK(lstat("one", &stat) == 0 && stat.st_size == SIZE);
  char *one = REGION("one", SIZE, NV_PRIVATE);
  FAILS(nv_free(one + 1), EINVAL);
  FAILS(nv_trim(&failed), EINVAL);
  OK(nv_free(one));
  FAILS(nv_free(one), ESTALE);
  FAILS(nv_trim(one), ESTALE);
  OK(nv_release());
}

/* The program has opened the file itself. */
static void used_already(void) {
  CHECK(mkdir("pool", 0700) == 0);
  int fd = nvopen("one", O_RDWR);
  OK(nv_init("pool"));
  FAILS(nv_allocate("one", SIZE, NV_SHARED), EXDEV);
  OK(nv_release());
  OK(nv_init(NULL));
  CHECK(nvpwrite(fd, "open", 4, 0) == 4);
  FAILS(nv_allocate("one", SIZE, NV_PRIVATE), EBUSY);
  char *one = REGION("one", SIZE, NV_SHARED);
  CHECK(memcmp(one, "open", 4) == 0);
  OK(nv_release());
  CHECK(nvpread(fd, (char[4]){0}, 4, 0) == 4 && nvclose(fd) == 0);
  OK(nv_init("pool"));
  one = REGION("one", SIZE, NV_PRIVATE);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, one, "in pool", 7));
  OK(nv_commit(tx));
  OK(nv_release());
  CHECK(has("one", "in pool", 0) && rmdir("pool") == 0); /* nothing is left in it */
}

static void *of_another_thread(void *tx) {
  FAILS(nv_write(tx, tx, "x", 1), EPERM);
  FAILS(nv_commit(tx), EPERM);
  FAILS(nv_abort(tx), EPERM);
  CHECK(nv_txbegin() != NULL); /* which the end of the thread aborts */
  return NULL;
}

static void of_child(void *tx) {
  FAILS(nv_write(tx, tx, "x", 1), ECHILD);
  FAILS(nv_commit(tx), ECHILD);
  FAILS(nv_abort(tx), ECHILD);
  FAILS(nv_txbegin(), ECHILD);
  FAILS(nv_allocate("new", SIZE, NV_SHARED), ECHILD);
  FAILS(nv_release(), ECHILD);
  OK(nv_init(NULL)); /* its own */
  FAILS(nv_commit(tx), EINVAL);
  char *child = REGION("childs", SIZE, NV_PRIVATE);
  tx = nv_txbegin();
  OK(nv_write(tx, child, "child", 5));
  OK(nv_commit(tx));
  OK(nv_release());
  CHECK(has("childs", "child", 0) && unlink("childs") == 0);
}

static void wrong_uses(void) {
  CHECK(mkdir("folder", 0755) == 0);
  OK(nv_init(NULL));
  char *one = REGION("one", SIZE, NV_PRIVATE), *two = REGION("two", SIZE, NV_SHARED);
  char *far = REGION("folder/far", SIZE, NV_SHARED);
  nv_tx *tx = nv_txbegin();
  FAILS(nv_txbegin(), EALREADY);
  OK(nv_write(tx, one + 8, "before", 6));
  FAILS(nv_write(tx, one + SIZE - 1, "xx", 2), ERANGE);
  FAILS(nv_write(tx, one, "x", SIZE + 1), ERANGE);
  FAILS(nv_write(tx, one, "x", SIZE_MAX), ERANGE);
  FAILS(nv_write(tx, &failed, "x", 1), ERANGE);
  FAILS(nv_write(tx, NULL, "x", 1), ERANGE);
  FAILS(nv_write(tx, one, bad, 4), EFAULT);
  FAILS(nv_write(tx, two, bad, 4), EFAULT);
  FAILS(nv_write(tx, far, "x", 1), EXDEV);
  FAILS(nv_free(one), EBUSY);
  FAILS(nv_free(two), EBUSY);
  FAILS(nv_release(), EBUSY);
  OK(nv_free(far)); /* is not in the transaction */
  FAILS(nv_write(tx, far, "x", 1), ESTALE);
  OK(nv_write(tx, one, "", 0));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, of_another_thread, tx) == 0 && pthread_join(thread, NULL) == 0);
  IN_CHILD(of_child, tx);
  CHECK(memcmp(one + 8, "before", 6) == 0);
  OK(nv_commit(tx));
  FAILS(nv_commit(tx), EINVAL);
  FAILS(nv_abort(tx), EINVAL);
  FAILS(nv_write(tx, one, "x", 1), EINVAL);
  FAILS(nv_commit(NULL), EINVAL);
  OK(nv_free(one));
  OK(nv_free(two));
  OK(nv_release());
  CHECK(has("one", "before", 8) && unlink("folder/far") == 0 && rmdir("folder") == 0);
}

/* A transaction with no room is as if it had never been, and once there is room it is possible. For a small file
 * system. On tmpfs, what is written to private memory takes room at once, where the file has none. */
static void full(int in_memory) {
  enum { LARGE = 1 << 20 };
  static char bytes[LARGE], before[2][LARGE];
  memset(bytes, 'x', LARGE);
  OK(nv_init(NULL));
  char *one = REGION("one", LARGE, NV_PRIVATE), *two = REGION("two", LARGE, NV_SHARED);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, one, "first", 5));
  OK(nv_write(tx, two, "first", 5));
  OK(nv_commit(tx));
  memcpy(one + 100, "stored", 6);
  int filler = open("filler", O_RDWR | O_CREAT, 0600);
  off_t taken = 0;
  for (off_t step = 1 << 20; step >= PAGE; step /= 2)
    while (!fallocate(filler, 0, taken, step)) taken += step;
  tx = nv_txbegin();
  if (in_memory) {
    FAILS(nv_write(tx, one, bytes, LARGE), ENOSPC);
  } else {
    memcpy(before[0], one, LARGE);
    memcpy(before[1], two, LARGE);
    OK(nv_write(tx, one, bytes, LARGE));
    CHECK(memcmp(one, bytes, LARGE) == 0);
  }
  OK(nv_write(tx, two, bytes, LARGE));
  FAILS(nv_commit(tx), ENOSPC);
  if (!in_memory) CHECK(memcmp(one, before[0], LARGE) == 0 && memcmp(two, before[1], LARGE) == 0);
  CHECK(memcmp(one, "first\0", 6) == 0 && memcmp(one + 100, "stored", 6) == 0 && memcmp(two, "first\0", 6) == 0);
  CHECK(ftruncate(filler, 0) == 0 && close(filler) == 0 && unlink("filler") == 0);
  tx = nv_txbegin();
  OK(nv_write(tx, one, bytes, LARGE));
  OK(nv_write(tx, two, bytes, LARGE));
  OK(nv_commit(tx));
  CHECK(memcmp(one, bytes, LARGE) == 0 && memcmp(two, bytes, LARGE) == 0);
  OK(nv_release());
  CHECK(has("one", "xxxx", 0) && has("two", "xxxx", LARGE - 4));
}

static struct {
  char *one, *two;
} of_threads;

/* Commits every other transaction of its own places in both regions, and counts in its pages of the private one. */
static void *one_of_several(void *number) {
  size_t place = (size_t)(intptr_t)number * 2 * PAGE + PAGE / 2;
  uint64_t *stored = (uint64_t *)(of_threads.one + place + PAGE);
  *stored = 0;
  for (uint64_t i = 1; i <= 400; i++) {
    uint64_t bytes[100];
    for (int word = 0; word < 100; word++) bytes[word] = i;
    nv_tx *tx = nv_txbegin();
    OK(nv_write(tx, of_threads.one + place, bytes, sizeof bytes));
    if (i % 3) OK(nv_write(tx, of_threads.two + place, bytes, sizeof bytes));
    ++*stored;
    if (i % 2) {
      OK(nv_commit(tx));
    } else {
      OK(nv_abort(tx));
      bytes[0] = i - 1;
    }
    CHECK(memcmp(of_threads.one + place, bytes, sizeof *bytes) == 0);
  }
  CHECK(*stored == 400);
  return NULL;
}

static void several_threads(void) {
  OK(nv_init(NULL));
  of_threads.one = REGION("one", SIZE, NV_PRIVATE);
  of_threads.two = REGION("two", SIZE, NV_SHARED);
  pthread_t threads[4];
  for (intptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, one_of_several, (void *)i) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  OK(nv_free(of_threads.one));
  OK(nv_free(of_threads.two));
  char *one = REGION("one", SIZE, NV_SHARED), *two = REGION("two", SIZE, NV_SHARED);
  for (int i = 0; i < 4; i++)
    for (int word = 0; word < 100; word++) {
      size_t at = (size_t)i * 2 * PAGE + PAGE / 2 + (size_t)word * 8;
      CHECK(*(uint64_t *)(one + at) == 399 && *(uint64_t *)(two + at) == 397);
    }
  OK(nv_release());
}

/* The process ends normally: what is open is aborted, and nothing is left beside the files. */
static void left_open(void) {
  OK(nv_init(NULL));
  char *one = REGION("one", SIZE, NV_PRIVATE), *two = REGION("two", SIZE, NV_SHARED);
  nv_tx *tx = nv_txbegin();
  OK(nv_write(tx, one, "last", 4));
  OK(nv_write(tx, two, "last", 4));
  OK(nv_commit(tx));
  tx = nv_txbegin();
  OK(nv_write(tx, one, "LAST", 4));
  OK(nv_write(tx, two, "LAST", 4));
}

/* After the library's end. */
static void late(void) {
  if (getenv("LD_PRELOAD")) return; /* that library was loaded before, and so ends later */
  FAILS(nv_init(NULL), ESHUTDOWN);
  if (failed) fflush(stdout), _exit(1);
}

int main(int argc, char **argv) {
  /* Registered before the library's own handler, so it runs after that. */
  atexit(late);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1 && strcmp(argv[1], "full") == 0) {
    full(argc > 2);
    return failed;
  }
  private_regions();
  aborted();
  several_regions();
  shared_regions();
  trimmed();
  huge();
  not_ready();
  no_region();
  used_already();
  wrong_uses();
  several_threads();
  left_open();
  return failed;
}

/* The errors in the man pages that require a kernel that refuses: one scenario per run, named by the first
 * argument. A filter for this thread's system calls simulates a bad disk or a quota. */
#define _GNU_SOURCE
#include "expect.h"

#include <famio.h>
#include <famio_vnvml.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

#define SAYS(text) CHECK(strstr(nverrmsg(), text))

/* From now on these two system calls of this thread are answered with `answer`. */
static void answer(long one, long other, unsigned answer) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)one, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)other, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, answer),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  CHECK(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static void no_flush(void) { answer(SYS_fdatasync, SYS_fsync, SECCOMP_RET_ERRNO | EIO); }

static char bytes[PAGE];

/* A file of eight pages that begins with "first", durable. */
static int begin(void) {
  int fd = nvopen("file", O_RDWR | O_CREAT, 0644);
  CHECK(fd > 2 && !nvftruncate(fd, 8 * PAGE) && nvpwrite(fd, "first", 5, 0) == 5 && !nvfsync(fd));
  return fd;
}

static void *map(int fd, size_t length) {
  void *map = nvmmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED);
  return map;
}

/* A SYNC cannot be made durable: nothing is written any more, but reads and the close work. */
static void sync_fails(void) {
  int fd = begin();
  char *stored = map(fd, 8 * PAGE);
  no_flush();
  stored[PAGE] = 'x';
  CHECK(nvpwrite(fd, "other", 5, 0) == 5);
  FAILS(nvfsync(fd), EIO);
  SAYS("no more writes are taken");
  SAYS("file");
  FAILS(nvfdatasync(fd), EIO);
  FAILS(nvmsync(stored, PAGE, MS_SYNC), EIO);
  FAILS(nvwrite(fd, "more", 4), EIO);
  FAILS(nvpwrite(fd, "more", 4, 0), EIO);
  struct iovec more = {bytes, 4};
  FAILS(nvwritev(fd, &more, 1), EIO);
  FAILS(nvpwritev(fd, &more, 1, 0), EIO);
  FAILS(nvftruncate(fd, 5), EIO);
  nvtx *tx = nvtx_begin(fd, 0);
  CHECK(tx && nvtx_pwrite(tx, fd, "more", 4, 0) == 4);
  FAILS(nvtx_commit(tx), EIO);
  CHECK(nvpread(fd, bytes, 5, 0) == 5 && !memcmp(bytes, "other", 5));
  CHECK(!nvmunmap(stored, 8 * PAGE));
  FAILS(nvclose(fd), EIO);
}

/* The last commit fails: the descriptor is closed all the same. */
static void close_fails(void) {
  int fd = begin();
  CHECK(nvpwrite(fd, "other", 5, 0) == 5 && nvpwrite(fd, "x", 1, PAGE) == 1);
  no_flush();
  FAILS(nvfsync(fd), EIO);
  FAILS(nvrollback(fd), EIO);
  FAILS(nvclose(fd), EIO);
  SAYS("file");
  FAILS(nvclose(fd), EBADF);
}

/* After one of the two above: as at the commit that failed, if that reached the journal, or at the one before. */
static void is_whole(void) {
  int fd = nvopen("file", O_RDWR);
  CHECK(nvpread(fd, bytes, PAGE, 0) == PAGE);
  int first = !memcmp(bytes, "first", 5), other = !memcmp(bytes, "other", 5);
  CHECK(first || other);
  CHECK(nvpread(fd, bytes, 1, PAGE) == 1 && *bytes == (first ? 0 : 'x'));
  CHECK(!nvclose(fd));
}

static char *region(const char *path, size_t size, int kind) {
  char *region = nv_allocate(path, size, kind);
  CHECK(region != NULL);
  return region;
}

/* The commit of a transaction over two regions cannot be made durable: it shows nowhere, and no other follows. */
static void vnvml_sync_fails(void) {
  CHECK(!nv_init(NULL));
  char *one = region("one", 8 * PAGE, NV_PRIVATE), *two = region("two", 8 * PAGE, NV_SHARED);
  nv_tx *tx = nv_txbegin();
  CHECK(!nv_write(tx, one, "first", 5) && !nv_write(tx, two, "first", 5) && !nv_commit(tx));
  no_flush();
  tx = nv_txbegin();
  CHECK(!nv_write(tx, one, "other", 5) && !nv_write(tx, two, "other", 5));
  FAILS(nv_commit(tx), EIO);
  CHECK(!memcmp(one, "first", 5));
  tx = nv_txbegin();
  CHECK(!nv_write(tx, one, "third", 5));
  FAILS(nv_commit(tx), EIO);
  CHECK(!memcmp(one, "first", 5));
}

/* After that: one of the first two, in both. */
static void vnvml_is_whole(void) {
  CHECK(!nv_init(NULL));
  char *one = region("one", 8 * PAGE, NV_SHARED), *two = region("two", 8 * PAGE, NV_PRIVATE);
  CHECK((!memcmp(one, "first", 5) || !memcmp(one, "other", 5)) && !memcmp(one, two, 8 * PAGE));
  CHECK(!nv_release());
}

/* No space because of a quota: nothing of the transaction is left, and committed data stays. */
static void vnvml_over_quota(void) {
  CHECK(!nv_init(NULL));
  size_t size = 64 << 20;
  char *one = region("one", size, NV_PRIVATE), *much = malloc(size);
  memset(much, 'm', size);
  nv_tx *tx = nv_txbegin();
  CHECK(!nv_write(tx, one, "first", 5) && !nv_commit(tx));
  answer(SYS_fallocate, SYS_fallocate, SECCOMP_RET_ERRNO | EDQUOT);
  tx = nv_txbegin();
  CHECK(!nv_write(tx, one, much, size));
  FAILS(nv_commit(tx), EDQUOT);
  CHECK(!memcmp(one, "first\0", 6) && !one[size - 1]);
}

/* No space because of a quota: the write reports it, and committed data stays. */
static void over_quota(void) {
  int fd = begin();
  answer(SYS_fallocate, SYS_fallocate, SECCOMP_RET_ERRNO | EDQUOT);
  size_t large = 64 << 20;
  char *much = calloc(1, large);
  memset(much, 'm', large);
  char *stored = map(fd, 8 * PAGE);
  long done = 0, n = 0;
  /* Space reserved before may be used up first. */
  while (done < 512 << 20 && (n = nvpwrite(fd, much, large, 8 * PAGE + done)) > 0) done += n;
  CHECK(n < 0 && errno == EDQUOT);
  nvtx *tx = nvtx_begin(fd, 0);
  CHECK(tx && nvtx_pwrite(tx, fd, much, large, 8 * PAGE + done) == (ssize_t)large);
  FAILS(nvtx_commit(tx), EDQUOT);
  FAILS(nvpwrite(fd, much, large, 8 * PAGE + done), EDQUOT);
  CHECK(nvpread(fd, bytes, 5, 0) == 5 && !memcmp(bytes, "first", 5));
  CHECK(!nvfsync(fd));
  /* What the background has freed by now is used up first. */
  int is_refused = 0;
  for (int round = 0; !is_refused && round < 100; round++) {
    while ((n = nvpwrite(fd, much, 1 << 20, 8 * PAGE + done)) > 0) done += n;
    memset(stored, 's' + round, 8 * PAGE);
    is_refused = nvfsync(fd) == -1 && errno == EDQUOT && nvmsync(stored, PAGE, MS_SYNC) == -1 && errno == EDQUOT;
  }
  CHECK(is_refused);
}

/* No space in the small file system: the calls report it, also for stores in maps; with space again, everything
 * works. */
static void full(void) {
  int filler = open("filler", O_RDWR | O_CREAT, 0600);
  int fd = begin();
  size_t large = 4 << 20;
  CHECK(!nvftruncate(fd, (off_t)large) && !nvfsync(fd)); /* a hole */
  char *stored = map(fd, large);
  off_t taken = 0;
  for (off_t step = 1 << 20; step >= PAGE; step /= 2)
    while (!fallocate(filler, 0, taken, step)) taken += step;
  memset(stored, 's', large);
  FAILS(nvmsync(stored, large, MS_SYNC), ENOSPC);
  FAILS(nvfsync(fd), ENOSPC);
  FAILS(nvfdatasync(fd), ENOSPC);
  /* A file without a journal so far. */
  int second = nvopen("second", O_RDWR | O_CREAT, 0644);
  FAILS(nvftruncate(second, 5), ENOSPC);
  FAILS(nvpwrite(second, "x", 1, 0), ENOSPC);
  SAYS("second");
  CHECK(!nvclose(second) && !unlink("second"));
  CHECK(nvpread(fd, bytes, 1, (off_t)large - 1) == 1 && *bytes == 's');
  struct iovec more = {stored, large};
  /* Existing space is used first. */
  off_t at = (off_t)large;
  long n;
  while ((n = nvpwrite(fd, bytes, PAGE, at)) > 0) at += n;
  CHECK(errno == ENOSPC);
  FAILS(nvpwritev(fd, &more, 1, at), ENOSPC);
  nvtx *tx = nvtx_begin(fd, 0);
  CHECK(tx && nvtx_pwrite(tx, fd, stored, large, at) == (ssize_t)large);
  FAILS(nvtx_commit(tx), ENOSPC);
  CHECK(nvlseek(fd, at, SEEK_SET) == at);
  FAILS(nvwrite(fd, bytes, PAGE), ENOSPC);
  FAILS(nvwritev(fd, &more, 1), ENOSPC);
  CHECK(!ftruncate(filler, 0));
  /* It could still be committed. */
  CHECK(!nvmsync(stored, large, MS_SYNC));
  CHECK(nvwrite(fd, bytes, PAGE) == PAGE);
  CHECK(!nvmunmap(stored, large) && !nvclose(fd));
  CHECK(!unlink("filler"));
  int plain = open("file", O_RDONLY);
  for (off_t page = 0; page < (off_t)large; page += PAGE)
    CHECK(pread(plain, bytes, PAGE, page) == PAGE && *bytes == 's' && bytes[PAGE - 1] == 's');
}

static int of_handler;
static volatile sig_atomic_t handled;

static void in_handler(int number) {
  (void)number;
  handled++;
  FAILS(nvpwrite(of_handler, "x", 1, 0), EDEADLK);
  FAILS(nvfsync(of_handler), EDEADLK);
  FAILS(nvftruncate(of_handler, 1), EDEADLK);
  nvtx *tx = nvtx_begin(of_handler, 0);
  CHECK(tx && nvtx_pwrite(tx, of_handler, "x", 1, 0) == 1);
  FAILS(nvtx_commit(tx), EDEADLK);
  FAILS(nvrollback(of_handler), EDEADLK);
  FAILS(nvmmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, of_handler, 0), EDEADLK);
  FAILS(nv_allocate("other", PAGE, NV_SHARED), EDEADLK);
  FAILS(nv_txbegin(), EDEADLK);
  FAILS(nv_release(), EDEADLK);
}

/* The signal comes from the flush itself, with the file's locks held. */
static void in_a_handler(void) {
  of_handler = begin();
  CHECK(!nv_init(NULL));
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = in_handler;
  sigaction(SIGSYS, &action, NULL);
  CHECK(nvpwrite(of_handler, "other", 5, 0) == 5);
  answer(SYS_fdatasync, SYS_fdatasync, SECCOMP_RET_TRAP);
  nvfsync(of_handler); /* what it answers is the handler's business */
  CHECK(handled > 0);
}

/* There is no memory for a map: to the processor, copying for a caller or for Famio, a page is missing. */
static void no_memory(void) {
  int fd = begin();
  char *stored = map(fd, 8 * PAGE);
  CHECK(nvmemcpy(stored, "s", 1) == stored);
  DIR *all = opendir("/proc/self/fd");
  int found = 0;
  for (struct dirent *entry; (entry = readdir(all));) {
    char link[256];
    ssize_t n = readlinkat(dirfd(all), entry->d_name, link, sizeof link - 1);
    link[n > 0 ? n : 0] = 0;
    if (strstr(link, ".shadow")) found = !ftruncate(atoi(entry->d_name), 0);
  }
  CHECK(found);
  FAILS(nvmemcpy(stored + PAGE, bytes, PAGE), ENOMEM);
  FAILS(nvmemmove(stored + PAGE, bytes, PAGE), ENOMEM);
  FAILS(nvmemset(stored + PAGE, 1, PAGE), ENOMEM);
  FAILS(nvstrcpy(stored + PAGE, "a string"), ENOMEM);
}

/* The limit that the process had when it first called the library. */
static void limited(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  /* The journal is a file of this process, too. */
  const off_t most = 4 << 20;
  limit.rlim_cur = (rlim_t)most;
  signal(SIGXFSZ, SIG_IGN);
  CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
  int fd = begin();
  FAILS(nvpwrite(fd, "x", 1, most), EFBIG);
  FAILS(nvftruncate(fd, most + 1), EFBIG);
  CHECK(nvpwrite(fd, bytes, PAGE, most - 1) == 1);
  CHECK(nvlseek(fd, most, SEEK_SET) == most);
  FAILS(nvwrite(fd, "x", 1), EFBIG);
  struct iovec one = {bytes, 1};
  FAILS(nvwritev(fd, &one, 1), EFBIG);
  FAILS(nvpwritev(fd, &one, 1, most), EFBIG);
  CHECK(!nvclose(fd));
}

/* Deleted or replaced while it was open, by calls that the library does not see: no error, and no journal is left. */
static void deleted(void) {
  int fd = begin();
  CHECK(nvpwrite(fd, "other", 5, 0) == 5 && !unlink("file"));
  CHECK(nvpwrite(fd, "more", 4, PAGE) == 4 && !nvfsync(fd));
  CHECK(nvpread(fd, bytes, 5, 0) == 5 && !memcmp(bytes, "other", 5) && !nvclose(fd));
  fd = nvopen("file", O_RDWR | O_CREAT, 0644);
  CHECK(!unlink("file"));
  CHECK(nvpwrite(fd, "x", 1, 0) == 1 && !nvfsync(fd) && !nvclose(fd));
  fd = begin();
  CHECK(nvpwrite(fd, "other", 5, 0) == 5);
  int new = open("new", O_RDWR | O_CREAT, 0600);
  CHECK(!rename("new", "file") && !close(new));
  CHECK(nvpwrite(fd, "more", 4, PAGE) == 4 && !nvclose(fd));
  CHECK(!unlink("file"));
}

/* Another user's file. */
static void forbidden(void) {
  CHECK(!nvclose(begin()) && !chmod("file", 0600));
  CHECK(!setgid(65534) && !setuid(65534));
  FAILS(nvopen("file", O_RDONLY), EACCES);
  FAILS(nvopenat(AT_FDCWD, "file", O_RDWR), EACCES);
  FAILS(nvrecover("file", 0), EACCES);
}

static const struct {
  const char *name;
  void (*run)(void);
} scenarios[] = {
    {"sync_fails", sync_fails}, {"close_fails", close_fails}, {"is_whole", is_whole}, {"over_quota", over_quota},
    {"full", full},             {"in_a_handler", in_a_handler}, {"no_memory", no_memory}, {"limited", limited},
    {"deleted", deleted},
    {"forbidden", forbidden},
    {"vnvml_sync_fails", vnvml_sync_fails},
    {"vnvml_is_whole", vnvml_is_whole},
    {"vnvml_over_quota", vnvml_over_quota},
};

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof scenarios[0]; i++) {
    if (strcmp(argv[1], scenarios[i].name)) continue;
    scenarios[i].run();
    fflush(stdout);
    /* Some scenarios leave a file that cannot be closed. */
    _exit(failed);
  }
  return 2;
}

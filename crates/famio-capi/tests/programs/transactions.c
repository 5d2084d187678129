/* Transactions and rollback in C: their effects, and every error that their pages name. */
#define _GNU_SOURCE
#include <famio.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

#define PAGE 4096

static int shows(int fd, const char *bytes, off_t at) {
  char found[64] = {0};
  size_t length = strlen(bytes);
  return nvpread(fd, found, length, at) == (ssize_t)length && !memcmp(found, bytes, length);
}

static int begin(void) {
  int fd = nvopen("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0 && nvpwrite(fd, "before", 6, 0) == 6 && !nvftruncate(fd, 8 * PAGE) && !nvfsync(fd));
  return fd;
}

static void as_a_whole(void) {
  int fd = begin();
  nvtx *tx = nvtx_begin(fd, NVTX_CHECK);
  char bytes[16];
  CHECK(tx && nvtx_pwrite(tx, fd, "after!", 6, 0) == 6 && nvtx_pwrite(tx, fd, "there", 5, 5 * PAGE) == 5);
  CHECK(nvtx_pread(tx, fd, bytes, 6, 0) == 6 && !memcmp(bytes, "after!", 6) && shows(fd, "before", 0));
  CHECK(!nvtx_ftruncate(tx, fd, 5 * PAGE + 3) && !nvtx_commit(tx));
  CHECK(shows(fd, "after!", 0) && shows(fd, "the", 5 * PAGE) && nvlseek(fd, 0, SEEK_END) == 5 * PAGE + 3);
  tx = nvtx_begin(fd, NVTX_NOSYNC);
  CHECK(tx && nvtx_pwrite(tx, fd, "thrice", 6, 0) == 6 && !nvtx_commit(tx) && shows(fd, "thrice", 0));
  tx = nvtx_begin(fd, 0);
  CHECK(tx && nvtx_pwrite(tx, fd, "never!", 6, 0) == 6);
  nvtx_abort(tx);
  nvtx_abort(NULL);
  CHECK(shows(fd, "thrice", 0) && !nvclose(fd));
}

static void into_maps(int kind) {
  int fd = begin();
  char *map = nvmmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | kind, fd, 0);
  char *readable = nvmmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && readable != MAP_FAILED);
  nvtx *tx = nvtx_begin(fd, 0);
  CHECK(nvtx_memcpy(tx, map + PAGE, "by a map", 8) == map + PAGE && !map[PAGE]);
  FAILS(nvtx_memcpy(tx, readable, "x", 1), EACCES);
  FAILS(nvtx_memcpy(tx, map + 8 * PAGE, "x", 1), ENXIO);
  FAILS(nvtx_memcpy(tx, &failed, "x", 1), EINVAL);
  CHECK(!nvtx_commit(tx) && !memcmp(map + PAGE, "by a map", 8) && shows(fd, "by a map", PAGE));
  FAILS(nvrollback(fd), EBUSY);
  CHECK(nvmemcpy(map + 2 * PAGE, "copied", 7) && !strcmp(map + 2 * PAGE, "copied") && shows(fd, "copied", 2 * PAGE));
  CHECK(!nvmsync(map, 16 * PAGE, MS_SYNC));
  pid_t child = fork();
  if (child == 0) _exit(kind && (nvmemcpy(map, "x", 1) || errno != EBUSY)); /* its parent would not know of it */
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (kind && getenv("LD_PRELOAD")) { /* which sees mprotect */
    CHECK(!mprotect(map, 2 * PAGE, PROT_READ | PROT_WRITE) && nvmemcpy(map + 3 * PAGE, "beside", 7));
    strcpy(map + 100, "stored");
    CHECK(!nvmsync(map, 16 * PAGE, MS_SYNC) && shows(fd, "stored", 100) && shows(fd, "beside", 3 * PAGE));
    strcpy(map + 200, "again");
    CHECK(!nvmsync(map, 16 * PAGE, MS_SYNC) && shows(fd, "again", 200));
  }
  CHECK(!nvmunmap(map, 16 * PAGE) && !nvmunmap(readable, PAGE) && !nvclose(fd));
}

static void wrong_uses(void) {
  int fd = begin(), reader = nvopen("file", O_RDONLY), other = nvopen("other", O_RDWR | O_CREAT, 0644);
  FAILS(nvtx_begin(fd, 64), EINVAL);
  FAILS(nvtx_begin(reader, 0), EBADF);
  FAILS(nvtx_begin(-1, 0), EBADF);
  FAILS(nvtx_begin(STDOUT_FILENO, 0), EBADF);
  nvtx *tx = nvtx_begin(fd, 0);
  FAILS(nvtx_pwrite(tx, other, "x", 1, 0), EXDEV);
  FAILS(nvtx_pread(tx, other, bad, 1, 0), EXDEV);
  FAILS(nvtx_ftruncate(tx, other, 0), EXDEV);
  FAILS(nvtx_pwrite(tx, reader, "x", 1, 0), EBADF);
  FAILS(nvtx_pwrite(tx, fd, "x", 1, -1), EINVAL);
  FAILS(nvtx_pwrite(tx, fd, "x", 1, INT64_MAX), EFBIG);
  FAILS(nvtx_pwrite(tx, fd, bad, 10, 0), EFAULT);
  FAILS(nvtx_pread(tx, fd, bad, 5, 0), EFAULT);
  CHECK(!nvtx_commit(tx));
  FAILS(nvtx_commit(tx), EINVAL); /* once more */
  FAILS(nvtx_pwrite(tx, fd, "x", 1, 0), EINVAL);
  FAILS(nvtx_timeout(NULL, 1), EINVAL);
  FAILS(nvtx_commit((nvtx *)&failed), EINVAL);
  /* A new transaction has nothing of the old one. */
  nvtx *next = nvtx_begin(fd, 0);
  CHECK(next != tx);
  FAILS(nvtx_pread(tx, fd, bad, 1, 0), EINVAL);
  nvtx_abort(tx);
  /* A child has the handles, but not the transactions. */
  pid_t child = fork();
  if (!child) {
    FAILS(nvtx_pwrite(next, fd, "x", 1, 0), ECHILD);
    FAILS(nvtx_commit(next), ECHILD);
    _exit(failed);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && !status);
  /* The file is closed. */
  CHECK(nvtx_pwrite(next, fd, "x", 1, 0) == 1 && !nvclose(reader) && !nvclose(fd));
  FAILS(nvtx_pwrite(next, fd, "x", 1, 0), EBADF);
  FAILS(nvtx_commit(next), EBADF);
  /* An unsupported file system is reported at the first write. */
  int comm = nvopen("/proc/self/comm", O_RDWR);
  tx = nvtx_begin(comm, 0);
  CHECK(tx && nvtx_pwrite(tx, comm, "x", 1, 0) == 1);
  FAILS(nvtx_commit(tx), EOPNOTSUPP);
  CHECK(!nvclose(comm) && !nvclose(other) && !unlink("other"));
}

/* All of them or none. */
static void several_files(void) {
  int fd = begin(), reader = nvopen("file", O_RDONLY), other = nvopen("other", O_RDWR | O_CREAT, 0644);
  nvtx *tx = nvtx_begin(fd, 0);
  CHECK(!nvtx_join(tx, other) && !nvtx_join(tx, fd) && !nvtx_join(tx, other));
  FAILS(nvtx_join(tx, reader), EBADF);
  CHECK(nvtx_pwrite(tx, fd, "both", 4, 0) == 4 && nvtx_pwrite(tx, other, "both of them", 12, 0) == 12);
  CHECK(shows(fd, "before", 0) && shows(other, "", 0));
  CHECK(!nvtx_ftruncate(tx, other, 4) && !nvtx_commit(tx));
  CHECK(shows(fd, "bothre", 0) && shows(other, "both", 0));
  tx = nvtx_begin(fd, NVTX_CHECK);
  char there[4];
  CHECK(!nvtx_join(tx, other) && nvtx_pread(tx, other, there, 4, 0) == 4 && nvtx_pwrite(tx, fd, "x", 1, 0) == 1);
  CHECK(nvpwrite(other, "B", 1, 0) == 1);
  FAILS(nvtx_commit(tx), EAGAIN);
  CHECK(shows(fd, "bothre", 0) && shows(other, "Both", 0));
  tx = nvtx_begin(fd, NVTX_NOSYNC);
  FAILS(nvtx_join(tx, other), EINVAL);
  nvtx_abort(tx);
  FAILS(nvtx_join(tx, other), EINVAL);
  /* Another pool. */
  CHECK(!mkdir("folder", 0755));
  int far = nvopen("folder/far", O_RDWR | O_CREAT, 0644);
  tx = nvtx_begin(fd, 0);
  CHECK(!nvtx_join(tx, far) && nvtx_pwrite(tx, fd, "x", 1, 0) == 1 && nvtx_pwrite(tx, far, "x", 1, 0) == 1);
  FAILS(nvtx_commit(tx), EXDEV);
  CHECK(shows(fd, "bothre", 0) && shows(far, "", 0));
  CHECK(!nvclose(fd) && !nvclose(reader) && !nvclose(other) && !nvclose(far));
  CHECK(!unlink("other") && !unlink("folder/far") && !rmdir("folder"));
}

static void limits(void) {
  int fd = begin();
  nvtx *tx = nvtx_begin(fd, 0);
  CHECK(nvtx_pwrite(tx, fd, "x", 1, 0) == 1 && !nvtx_timeout(tx, 1));
  while (nvtx_pwrite(tx, fd, "y", 1, 0) == 1)
    ;
  FAILS(nvtx_pread(tx, fd, bad, 1, 0), ETIMEDOUT);
  FAILS(nvtx_commit(tx), ETIMEDOUT);
  CHECK(shows(fd, "before", 0));
  tx = nvtx_begin(fd, NVTX_CHECK);
  char byte;
  CHECK(!nvtx_timeout(tx, 100000) && !nvtx_timeout(tx, 0) && nvtx_pread(tx, fd, &byte, 1, 0) == 1);
  CHECK(nvpwrite(fd, "B", 1, 0) == 1 && nvtx_pwrite(tx, fd, "x", 1, PAGE) == 1);
  FAILS(nvtx_commit(tx), EAGAIN);
  CHECK(shows(fd, "Before", 0) && !nvclose(fd));
}

static void rolled_back(void) {
  int fd = begin(), reader = nvopen("file", O_RDONLY);
  CHECK(nvpwrite(fd, "after!", 6, 0) == 6 && !nvftruncate(fd, 3) && !nvrollback(fd));
  CHECK(shows(fd, "before", 0) && nvlseek(fd, 0, SEEK_END) == 8 * PAGE);
  CHECK(nvpwrite(fd, "again!", 6, 0) == 6 && !nvfsync(fd) && !nvrollback(fd) && shows(fd, "again!", 0));
  CHECK(!nvrollback(fd));
  FAILS(nvrollback(reader), EBADF);
  FAILS(nvrollback(-1), EBADF);
  CHECK(!nvclose(reader) && !nvclose(fd));
}

int main(void) {
  as_a_whole();
  into_maps(0), into_maps(NVMAP_COPIES);
  wrong_uses();
  several_files();
  limits();
  rolled_back();
  return failed;
}

/* Reading, writing, positions, sizes, and stat in all its forms. */
#include "check.h"
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>

static void *symbol(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  CHECK(found != NULL);
  return found;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = argv[1];
  bool atomic = strcmp(path, "atomic") == 0;
  struct stat st;
  char buffer[64] = {0};
  int fd;

  CHECK((fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
  WORKS(write(fd, "0123456789", 10));
  CHECK(!atomic || kernel_position(fd) == 0);
  WORKS(lseek(fd, 2, SEEK_SET));
  WORKS(read(fd, buffer, 3));
  CHECK(memcmp(buffer, "234", 3) == 0);
  WORKS(pread(fd, buffer, 3, 7));
  CHECK(memcmp(buffer, "789", 3) == 0 && lseek(fd, 0, SEEK_CUR) == 5);
  WORKS(pwrite(fd, "X", 1, 0));
  WORKS(fsync(fd));
  WORKS(fdatasync(fd));
  WORKS(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
  WORKS(syncfs(fd));
  sync();
  FAILS(pread(fd, buffer, 1, -1), EINVAL);
  FAILS(pwrite(fd, buffer, 1, -1), EINVAL);
  FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
  FAILS(lseek(fd, 0, 99), EINVAL);
  FAILS(read(fd, (void *)8, 1), EFAULT);
  FAILS(write(fd, (void *)8, 1), EFAULT);
  FAILS(write(-1, "x", 1), EBADF);
  FAILS(fsync(1 << 20), EBADF);
  CHECK(pread(fd, buffer, 1, 100) == 0 && pread(fd, buffer, 1, LLONG_MAX - 1) == 0);
  FAILS(pread(fd, buffer, 2, LLONG_MAX), EINVAL);
  CHECK(write(fd, "", 0) == 0);

  struct iovec bufs[3] = {{buffer, 2}, {buffer + 10, 0}, {buffer + 20, 3}};
  CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, bufs, 3) == 5);
  CHECK(memcmp(buffer, "X1", 2) == 0 && memcmp(buffer + 20, "234", 3) == 0);
  CHECK(preadv(fd, bufs, 3, 5) == 5 && memcmp(buffer, "56", 2) == 0);
  CHECK(preadv2(fd, bufs, 1, -1, 0) == 2 && lseek(fd, 0, SEEK_CUR) == 7);
  CHECK(writev(fd, bufs, 1) == 2 && pwritev(fd, bufs, 3, 100) == 5);
  CHECK(pwritev2(fd, bufs, 1, 0, RWF_APPEND) == 2 && pwritev2(fd, bufs, 1, 0, RWF_DSYNC) == 2);
  CHECK(fstat(fd, &st) == 0 && st.st_size == 107);
  FAILS(readv(fd, bufs, -1), EINVAL);
  FAILS(writev(fd, bufs, 1025), EINVAL);
  FAILS(writev(fd, (struct iovec *)8, 1), EFAULT);
  FAILS(preadv2(fd, bufs, 1, 0, 1 << 20), EOPNOTSUPP);

  WORKS(ftruncate(fd, 5));
  FAILS(ftruncate(fd, -1), EINVAL);
  CHECK(lseek(fd, 0, SEEK_END) == 5);
  WORKS(truncate(path, 8));
  CHECK(pread(fd, buffer, 10, 0) == 8 && memcmp(buffer + 5, "\0\0\0", 3) == 0);
  WORKS(fallocate(fd, 0, 0, 5000));
  CHECK(posix_fallocate(fd, 4000, 2000) == 0 && posix_fallocate(fd, -1, 1) == EINVAL);
  CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2) == 0);
  CHECK(pread(fd, buffer, 1, 0) == 1 && buffer[0] == 0);
  CHECK(pwrite(fd, "zero", 4, 5000) == 4);
  WORKS(fallocate64(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5001, 1 << 30));
  CHECK(pread(fd, buffer, 4, 5000) == 4 && memcmp(buffer, "z\0\0\0", 4) == 0);
  WORKS(fallocate(fd, FALLOC_FL_KEEP_SIZE, 9000, 5000));
  /* Not every file system supports it. */
  CHECK(fallocate(fd, FALLOC_FL_ZERO_RANGE, 5000, 1000) == 0 || errno == EOPNOTSUPP);
  CHECK(strcmp(path, "atomic") != 0 || (pread(fd, buffer, 1, 5000) == 1 && buffer[0] == 0));
  FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 2), EOPNOTSUPP);
  FAILS(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
  FAILS(fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, 4096), EOPNOTSUPP);
  FAILS(fallocate(fd, 0, 0, 0), EINVAL);
  FAILS(fallocate(fd, 0, INT64_MAX, 2), EFBIG);
  int closed_to_writes = open(path, O_RDONLY);
  FAILS(fallocate(closed_to_writes, 0, 0, 2), EBADF);
  close(closed_to_writes);
  CHECK(dprintf(fd, "%s %d\n", "formatted", 7) == 12);

  /* Every form of stat. */
  off_t size = 6000;
  struct stat64 st64;
  struct statx stx;
  CHECK(fstat(fd, &st) == 0 && st.st_size == size && st.st_blocks * 512 >= 4096);
  CHECK(stat(path, &st) == 0 && st.st_size == size);
  CHECK(lstat(path, &st) == 0 && st.st_size == size);
  CHECK(fstatat(AT_FDCWD, path, &st, 0) == 0 && st.st_size == size);
  CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_size == size);
  CHECK(fstat64(fd, &st64) == 0 && st64.st_size == size && stat64(path, &st64) == 0 && st64.st_size == size);
  CHECK(statx(AT_FDCWD, path, 0, STATX_SIZE, &stx) == 0 && stx.stx_size == (uint64_t)size);
#if defined(__x86_64__)
  int (*xstat)(int, const char *, struct stat *) = symbol("__xstat");
  int (*lxstat)(int, const char *, struct stat *) = symbol("__lxstat64");
  int (*fxstat)(int, int, struct stat *) = symbol("__fxstat64");
  int (*fxstatat)(int, int, const char *, struct stat *, int) = symbol("__fxstatat");
  CHECK(xstat(1, path, &st) == 0 && st.st_size == size && lxstat(1, path, &st) == 0 && st.st_size == size);
  CHECK(fxstat(1, fd, &st) == 0 && st.st_size == size && fxstatat(1, AT_FDCWD, path, &st, 0) == 0 && st.st_size == size);
  FAILS(xstat(7, path, &st), EINVAL);
#endif

  /* The other names. */
  int (*open_2)(const char *, int) = symbol("__open64_2");
  int (*openat_2)(int, const char *, int) = symbol("__openat_2");
  ssize_t (*read_chk)(int, void *, size_t, size_t) = symbol("__read_chk");
  ssize_t (*pread_chk)(int, void *, size_t, off_t, size_t) = symbol("__pread64_chk");
  int other = open_2(path, O_RDWR);
  CHECK(other >= 0 && pwrite(other, "alias", 5, 0) == 5);
  CHECK(read_chk(other, buffer, 5, sizeof buffer) == 5 && memcmp(buffer, "alias", 5) == 0);
  CHECK(!atomic || kernel_position(other) == 0);
  CHECK(pread_chk(other, buffer, 2, 3, sizeof buffer) == 2 && memcmp(buffer, "as", 2) == 0);
  close(other);
  CHECK((other = openat_2(AT_FDCWD, path, O_RDONLY)) >= 0);
  CHECK(syscall(SYS_read, other, buffer, 5L) == 5 && memcmp(buffer, "alias", 5) == 0);
  CHECK(!atomic || kernel_position(other) == 0);
  CHECK(syscall(SYS_lseek, other, 0L, (long)SEEK_CUR) == 5);
  FAILS(syscall(SYS_read, -1, buffer, 1L), EBADF);
  FAILS(syscall(100000L), ENOSYS);
  CHECK(syscall(SYS_close, other) == 0);
  CHECK(syscall(SYS_getpid) == getpid());
  CHECK((other = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_TRUNC)) >= 0);
  CHECK(fstat(fd, &st) == 0 && st.st_size == 0);
  CHECK(syscall(SYS_pwrite64, other, "by number", 9L, 1L) == 9 && fstat(fd, &st) == 0 && st.st_size == 10);
  close(other);

  /* RLIMIT_FSIZE. */
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = {20, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  CHECK(pwrite(fd, buffer, 30, 0) == 20);
  FAILS(pwrite(fd, buffer, 1, 20), EFBIG);
  FAILS(ftruncate(fd, 21), EFBIG);
  CHECK(ftruncate(fd, 20) == 0);
  limit.rlim_cur = RLIM_INFINITY;
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && pwrite(fd, buffer, 1, 20) == 1);
  CHECK(close(fd) == 0);
  return 0;
}

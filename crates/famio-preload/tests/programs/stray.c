/* Calls with numbers that the program has not opened, some of which are the library's, since the hard limit leaves
 * it no others. Each fails with EBADF, and the file stays as synced. Arguments: the atomic file. */
#include "check.h"
#include <pthread.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { LIMIT = 64 };
static int file, ends[2], theirs;

static void each(int fd) {
  char bytes[64];
  memset(bytes, 'x', sizeof bytes);
  struct iovec piece = {bytes, sizeof bytes};
  struct stat stat;
  struct timespec times[2] = {{1, 0}, {1, 0}};
  FAILS(write(fd, bytes, sizeof bytes), EBADF);
  FAILS(pwrite(fd, bytes, sizeof bytes, 0), EBADF);
  FAILS(writev(fd, &piece, 1), EBADF);
  FAILS(pwritev(fd, &piece, 1, 0), EBADF);
  FAILS(pwritev2(fd, &piece, 1, 0, 0), EBADF);
  FAILS(read(fd, bytes, sizeof bytes), EBADF);
  FAILS(pread(fd, bytes, sizeof bytes, 0), EBADF);
  FAILS(readv(fd, &piece, 1), EBADF);
  FAILS(lseek(fd, 0, SEEK_SET), EBADF);
  FAILS(ftruncate(fd, 100), EBADF);
  FAILS(fallocate(fd, 0, 0, 100), EBADF);
  CHECK(posix_fallocate(fd, 0, 100) == EBADF);
  CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL) == EBADF);
  FAILS(fsync(fd), EBADF);
  FAILS(fdatasync(fd), EBADF);
  FAILS(syncfs(fd), EBADF);
  FAILS(flock(fd, LOCK_EX), EBADF);
  FAILS(lockf(fd, F_TLOCK, 0), EBADF);
  FAILS(fstat(fd, &stat), EBADF);
  FAILS(fchmod(fd, 0666), EBADF);
  FAILS(fchown(fd, getuid(), getgid()), EBADF);
  FAILS(futimens(fd, times), EBADF);
  FAILS(ioctl(fd, FIONREAD, bytes), EBADF);
  FAILS(fcntl(fd, F_GETFL), EBADF);
  FAILS(dup(fd), EBADF);
  FAILS(dprintf(fd, "text %d", 1), EBADF);
  FAILS(sendfile(fd, file, NULL, 10), EBADF);
  FAILS(sendfile(file, fd, NULL, 10), EBADF);
  FAILS(sendfile(ends[1], fd, NULL, 10), EBADF);
  FAILS(copy_file_range(fd, NULL, file, NULL, 10, 0), EBADF);
  FAILS(copy_file_range(file, NULL, fd, NULL, 10, 0), EBADF);
  FAILS(splice(fd, NULL, ends[1], NULL, 10, 0), EBADF);
  FAILS(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0), EBADF);
  FAILS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EBADF);
  errno = 0;
  CHECK(fdopen(fd, "r+") == NULL && errno == EBADF);
  FAILS(syscall(SYS_write, fd, bytes, sizeof bytes), EBADF);
  FAILS(syscall(SYS_pwrite64, fd, bytes, sizeof bytes, 0), EBADF);
  FAILS(syscall(SYS_ftruncate, fd, 0), EBADF);
  FAILS(close(fd), EBADF);
}

/* A thread that may be cancelled at any instruction enters the library in another way. */
static void *cancelled_at_once(void *argument) {
  CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
  for (int fd = 0; fd < LIMIT; fd++)
    if (((bool *)argument)[fd]) FAILS(write(fd, "x", 1), EBADF);
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  closefrom(3);
  struct rlimit limit = {LIMIT, LIMIT};
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(file == 3 && pipe(ends) == 0);
  CHECK(write(file, "synced", 6) == 6 && fsync(file) == 0);
  bool strays[LIMIT] = {false};
  for (int fd = 6; fd < LIMIT; fd++) {
    struct stat stat;
    theirs += inlined(SYS_fstat, fd, (long)&stat, 0, 0) == 0;
    strays[fd] = true;
    each(fd);
  }
  CHECK(theirs > 0); /* some were the library's */
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, cancelled_at_once, strays) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(pwrite(file, "SYNCED", 6, 0) == 6 && fsync(file) == 0 && has(argv[1], "SYNCED"));
  CHECK(close(file) == 0);
  return 0;
}

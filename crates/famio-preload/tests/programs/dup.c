/* Duplicates share position and flags; closing by ranges; the kernel keeps the locks. */
#include "check.h"
#include <sys/resource.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* Whether another process finds a record lock on the file. */
static bool locked(const char *path) {
  pid_t child = fork();
  if (child == 0) {
    long fd = inlined(SYS_openat, AT_FDCWD, (long)path, O_RDWR, 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    inlined(SYS_fcntl, fd, F_GETLK, (long)&lock, 0);
    inlined(SYS_exit_group, lock.l_type == F_UNLCK ? 0 : 1, 0, 0, 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

/* From glibc 2.36 on. */
extern int pidfd_getfd(int pidfd, int target, unsigned flags) __attribute__((weak));

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = argv[1];
  char buffer[16];
  int fd, other;

  CHECK((fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
  WORKS(other = dup(fd));
  CHECK(write(fd, "abc", 3) == 3 && write(other, "def", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 6);
  CHECK(fcntl(other, F_SETFL, O_APPEND) == 0 && (fcntl(fd, F_GETFL) & O_APPEND));
  CHECK(fcntl(fd, F_SETFL, 0) == 0);
  CHECK(close(fd) == 0 && lseek(other, 0, SEEK_SET) == 0 && read(other, buffer, 16) == 6);
  CHECK(dup2(other, 100) == 100 && dup3(other, 101, O_CLOEXEC) == 101 && fcntl(101, F_GETFD) == FD_CLOEXEC);
  FAILS(dup3(other, other, 0), EINVAL);
  FAILS(dup3(other, 102, 1), EINVAL);
  FAILS(dup2(99, 100), EBADF);
  FAILS(dup(99), EBADF);
  CHECK(dup2(other, other) == other);
  CHECK(fcntl(other, F_DUPFD, 200) == 200 && fcntl(other, F_DUPFD_CLOEXEC, 201) == 201);
  CHECK(lseek(200, 1, SEEK_SET) == 1 && read(100, buffer, 2) == 2 && memcmp(buffer, "bc", 2) == 0);
  int left = -1;
  CHECK(ioctl(fd = dup(201), FIONREAD, &left) == 0 && left == 3);
  FAILS(ioctl(fd, FIONREAD, (void *)8), EFAULT);
  close(fd);

  /* Over an atomic descriptor. */
  int ends[2];
  CHECK(pipe(ends) == 0 && dup2(ends[1], 100) == 100 && write(100, "pipe", 4) == 4);
  CHECK(read(ends[0], buffer, 16) == 4);
  CHECK(pread(other, buffer, 16, 0) == 6);
  CHECK(dup2(other, ends[0]) == ends[0] && pread(ends[0], buffer, 16, 0) == 6);

  /* Record locks: taken on the real file, kept until a descriptor of it is closed. */
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(!locked(path));
  CHECK(fcntl(other, F_SETLK, &lock) == 0 && locked(path));
  CHECK(write(other, "x", 1) == 1 && fsync(other) == 0 && locked(path));
  close(201);
  CHECK(!locked(path));
  CHECK(fcntl(other, F_SETLKW, &lock) == 0 && locked(path));
  lock.l_type = F_UNLCK;
  CHECK(fcntl(other, F_SETLK, &lock) == 0 && !locked(path));
  CHECK(flock(other, LOCK_EX) == 0 && flock(other, LOCK_UN) == 0);
  lock.l_type = F_WRLCK;
  CHECK(fcntl(other, F_OFD_SETLK, &lock) == 0 && locked(path));

  /* Ranges. */
  FAILS(close_range(300, 200, 0), EINVAL);
  CHECK(close_range(100, 300, 0) == 0);
  FAILS(write(200, "x", 1), EBADF);
  CHECK(write(other, "y", 1) == 1);
  closefrom(3);
  FAILS(write(other, "z", 1), EBADF);
  CHECK((fd = open(path, O_RDONLY)) == 3 && read(fd, buffer, 16) == 6);
  close(fd);

  /* A duplicate through a process descriptor: uncommitted data is there. */
  if (pidfd_getfd) {
    int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK((fd = open(path, O_RDWR)) >= 0 && pwrite(fd, "ABC", 3, 0) == 3 && process >= 0);
    CHECK((other = pidfd_getfd(process, fd, 0)) >= 0 && pread(other, buffer, 3, 0) == 3 && memcmp(buffer, "ABC", 3) == 0);
    CHECK(pwrite(other, "abc", 3, 0) == 3 && pread(fd, buffer, 3, 0) == 3 && memcmp(buffer, "abc", 3) == 0);
    CHECK(close(other) == 0 && close(fd) == 0 && close(process) == 0);
  }

  /* Closed unseen by the library: the number then gets another file. */
  CHECK((fd = open(path, O_RDWR)) >= 0 && inlined(SYS_close, fd, 0, 0, 0) == 0);
  CHECK(open("/dev/null", O_RDWR) == fd && write(fd, "gone", 4) == 4 && read(fd, buffer, 4) == 0);
  close(fd);
  CHECK((fd = open(path, O_RDWR)) >= 0 && inlined(SYS_close, fd, 0, 0, 0) == 0);
  CHECK(pipe(ends) == 0 && ends[0] == fd && write(ends[1], "q", 1) == 1 && read(ends[0], buffer, 4) == 1);
  close(ends[0]), close(ends[1]);

  /* Over a number above a limit that was lowered since: it fails, and the number stays the atomic file's. */
  struct rlimit limit, lower;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && (fd = open(path, O_RDWR)) >= 0 && dup2(fd, 900) == 900);
  lower = limit, lower.rlim_cur = 100;
  CHECK(setrlimit(RLIMIT_NOFILE, &lower) == 0);
  FAILS(dup2(2, 900), EBADF);
  CHECK(pwrite(fd, "12345678", 8, 0) == 8 && pwrite(900, "abc", 3, 0) == 3);
  CHECK(pread(fd, buffer, 8, 0) == 8 && memcmp(buffer, "abc45678", 8) == 0);
  CHECK(pwrite(fd, "abcdef", 6, 0) == 6 && ftruncate(fd, 6) == 0);
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && close(900) == 0 && close(fd) == 0);
  CHECK(has(path, "abcxyf") || has(path, "abcdef") || has(path, "abcxef"));
  return 0;
}

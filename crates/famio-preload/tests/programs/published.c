/* Programs on which the published libraries failed. argv[2] is the case. */
#include "check.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* More descriptors than a table of 1024 holds; failing opens; calls that ended the host process. */
static void descriptors(const char *path) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max < 3000 ? limit.rlim_max : 3000;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  static int fds[2900];
  int count = limit.rlim_cur < 3000 ? (int)limit.rlim_cur - 50 : 2900;
  for (int i = 0; i < count; i++) {
    fds[i] = open(path, i % 3 == 0 ? O_RDWR | O_CREAT : O_RDONLY, 0644);
    CHECK(fds[i] >= 0);
  }
  CHECK(count < 1100 || fds[count - 1] > 1024);
  for (int i = 0; i < count; i += 3) CHECK(pwrite(fds[i], &i, sizeof i, (off_t)i * 4) == sizeof i);
  for (int i = 0; i < count; i += 3) {
    int found = -1;
    CHECK(pread(fds[count - 1], &found, sizeof found, (off_t)i * 4) == sizeof found && found == i);
  }
  for (int i = 0; i < count; i++) CHECK(close(fds[i]) == 0);

  /* A failed open was passed on as descriptor -1. */
  int bad = open("no/such/atomic", O_RDWR);
  CHECK(bad == -1 && errno == ENOENT);
  char byte = 1;
  struct stat st;
  FAILS(write(bad, &byte, 1), EBADF);
  FAILS(read(bad, &byte, 1), EBADF);
  FAILS(fsync(bad), EBADF);
  FAILS(close(bad), EBADF);
  FAILS(lseek(bad, 0, SEEK_SET), EBADF);
  FAILS(fstat(bad, &st), EBADF);
  FAILS(read(1 << 30, &byte, 1), EBADF);

  /* lseek beyond the end, and O_WRONLY, called exit(). */
  int fd = open(path, O_WRONLY | O_TRUNC);
  CHECK(fd >= 0);
  CHECK(lseek(fd, 100000, SEEK_SET) == 100000);
  CHECK(write(fd, "end", 3) == 3);
  FAILS(read(fd, &byte, 1), EBADF);
  CHECK(fstat(fd, &st) == 0 && st.st_size == 100003);
  CHECK(fsync(fd) == 0 && close(fd) == 0);
  fd = open(path, O_RDONLY);
  CHECK(pread(fd, &byte, 1, 50000) == 1 && byte == 0);
  CHECK(pread(fd, &byte, 1, 100000) == 1 && byte == 'e');
  FAILS(write(fd, &byte, 1), EBADF);
  CHECK(close(fd) == 0);
}

/* stat() went to a three-argument function with two; fstat showed the allocated size. */
static void sizes(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  struct stat st;
  for (int i = 1; i <= 300; i++) {
    CHECK(write(fd, "x", 1) == 1);
    if (i % 7 == 0) CHECK(fdatasync(fd) == 0);
    CHECK(stat(path, &st) == 0 && st.st_size == i);
    CHECK(lstat(path, &st) == 0 && st.st_size == i);
    CHECK(fstat(fd, &st) == 0 && st.st_size == i);
    CHECK(fstatat(AT_FDCWD, path, &st, 0) == 0 && st.st_size == i);
  }
  int (*old_stat)(int, const char *, struct stat *) = (int (*)(int, const char *, struct stat *))dlsym(RTLD_DEFAULT, "__xstat");
  if (old_stat) CHECK(old_stat(1, path, &st) == 0 && st.st_size == 300);
  CHECK(close(fd) == 0);
}

/* MadFS: ftruncate64 bypassed it. */
static void truncation(const char *path) {
  int fd = open64(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  char bytes[10000];
  memset(bytes, 'a', sizeof bytes);
  CHECK(pwrite64(fd, bytes, sizeof bytes, 0) == sizeof bytes);
  CHECK(ftruncate64(fd, 5000) == 0);
  CHECK(pread64(fd, bytes, sizeof bytes, 0) == 5000);
  CHECK(lseek64(fd, 0, SEEK_END) == 5000);
  CHECK(ftruncate64(fd, 9000) == 0);
  CHECK(pread64(fd, bytes, sizeof bytes, 0) == 9000);
  for (int i = 0; i < 9000; i++) CHECK(bytes[i] == (i < 5000 ? 'a' : 0));
  CHECK(truncate64(path, 100) == 0);
  CHECK(pread64(fd, bytes, sizeof bytes, 0) == 100);
  CHECK(fdatasync(fd) == 0 && close(fd) == 0);
}

/* MadFS: record locks reported success but locked nothing. */
static void locks(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT, 0644);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  /* The lock survives the first write, which creates the journal. */
  CHECK(pwrite(fd, "data", 4, 0) == 4 && fsync(fd) == 0);
  int end[2];
  CHECK(pipe(end) == 0);
  pid_t child = fork();
  if (child == 0) {
    int other = (int)inlined(SYS_openat, AT_FDCWD, (long)path, O_RDWR, 0);
    struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 15, .l_len = 1};
    long taken = inlined(SYS_fcntl, other, F_SETLK, (long)&wanted, 0);
    inlined(SYS_exit_group, taken == -EAGAIN || taken == -EACCES ? 0 : 1, 0, 0, 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(close(fd) == 0);
}

/* A child's exit deleted its parent's logs. */
static void child_ends(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(write(fd, "before, ", 8) == 8 && fsync(fd) == 0);
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (child == 0) {
      if (i == 1) write(fd, "child", 5);
      if (i == 2) close(fd);
      exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  CHECK(write(fd, "after", 5) == 5 && fsync(fd) == 0);
  CHECK(write(fd, ", never", 7) == 7);
  kill(getpid(), SIGKILL);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *path = argv[1], *what = argv[2];
  if (!strcmp(what, "descriptors")) descriptors(path);
  if (!strcmp(what, "sizes")) sizes(path);
  if (!strcmp(what, "truncation")) truncation(path);
  if (!strcmp(what, "locks")) locks(path);
  if (!strcmp(what, "child")) child_ends(path);
  if (!strcmp(what, "unsynced")) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(write(fd, "synced, ", 8) == 8 && fsync(fd) == 0);
    CHECK(write(fd, "not synced", 10) == 10);
    exit(0);
  }
  return 0;
}

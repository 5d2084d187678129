/* A process changes a file, and another one asks when it was changed. The first argument is the file. */
#include "check.h"
#include <sys/wait.h>
#include <time.h>

#define LONG_AGO 1000000000L

static long modified(const char *path, int fd) {
  struct stat stat_;
  CHECK((fd >= 0 ? fstat(fd, &stat_) : stat(path, &stat_)) == 0);
  return stat_.st_mtim.tv_sec;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = argv[1];
  struct timespec times[2] = {{LONG_AGO, 0}, {LONG_AGO, 0}};
  int tells[2], told[2], status;
  char byte = 0, bytes[8192] = {0};
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
  CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes && futimens(fd, times) == 0 && close(fd) == 0);
  CHECK(modified(path, -1) == LONG_AGO && pipe(tells) == 0 && pipe(told) == 0);
  pid_t child = fork();
  if (child == 0) {
    CHECK((fd = open(path, O_RDWR)) >= 0 && pwrite(fd, "x", 1, 0) == 1);
    CHECK(write(told[1], &byte, 1) == 1 && read(tells[0], &byte, 1) == 1);
    CHECK(fsync(fd) == 0 && close(fd) == 0);
    exit(0);
  }
  CHECK(read(told[0], &byte, 1) == 1);
  long during = modified(path, -1);
  CHECK(during > LONG_AGO && (fd = open(path, O_RDONLY)) >= 0);
  /* Milliseconds later, if the file gets a session only now: perhaps in the next second. */
  CHECK(modified(path, fd) >= during && modified(path, fd) <= during + 1);
  CHECK(write(tells[1], &byte, 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(modified(path, fd) >= during && close(fd) == 0);
  return 0;
}

/* A process writes to a new file, which grows; another one renames the file, which needs a session for it, and asks for
 * its size meanwhile. The first argument is the file. */
#include "check.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define ROUNDS 8
/* Nanoseconds for which it asks. A session begins in less. */
#define LONG 40000000L

static long now(void) {
  struct timespec time;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static off_t size_of(const char *path) {
  struct stat stat_;
  CHECK(stat(path, &stat_) == 0);
  return stat_.st_size;
}

static void write_then_wait(const char *path, int tell, int wait) {
  char byte = 0;
  CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
  CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
  CHECK(write(tell, &byte, 1) == 1 && read(wait, &byte, 1) == 1);
  CHECK(close(fd) == 0);
  exit(0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = argv[1];
  char other[4096], byte = 0;
  snprintf(other, sizeof other, "%s-other", path);
  for (int round = 0; round < ROUNDS; round++) {
    int told[2], waits[2], status;
    CHECK(pipe(told) == 0 && pipe(waits) == 0);
    pid_t child = fork();
    if (child == 0) write_then_wait(path, told[1], waits[0]);
    CHECK(read(told[0], &byte, 1) == 1 && size_of(path) == 5);
    CHECK(rename(path, other) == 0);
    for (long begun = now(); now() < begun + LONG;) CHECK(size_of(other) == 5);
    CHECK(write(waits[1], &byte, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(size_of(other) == 5 && unlink(other) == 0);
    CHECK(close(told[0]) == 0 && close(told[1]) == 0 && close(waits[0]) == 0 && close(waits[1]) == 0);
  }
  return 0;
}

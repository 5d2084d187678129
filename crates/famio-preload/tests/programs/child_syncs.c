/* A child commits by sync or syncfs what its parent has written to the file of the first argument; then both are killed. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
  CHECK(argc == 3);
  int fd = open(argv[1], O_RDWR | O_CREAT, 0600), status;
  CHECK(fd >= 0 && pwrite(fd, "aaaa", 4, 0) == 4 && fsync(fd) == 0 && pwrite(fd, "AAAA", 4, 0) == 4);
  CHECK(fsync(fd) == 0 && pwrite(fd, "BB", 2, 0) == 2);
  pid_t child = fork();
  if (child == 0) {
    if (strcmp(argv[2], "syncfs") == 0) CHECK(syncfs(fd) == 0);
    else sync();
    raise(SIGKILL);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  CHECK(pwrite(fd, "CC", 2, 2) == 2);
  raise(SIGKILL);
}

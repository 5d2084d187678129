/* A child demotes the file of an inherited descriptor, and ends. The parent writes on, with a session; another child
 * cuts the file. The first argument is the file, the second says how the first child demotes it. */
#include "check.h"
#include <sys/wait.h>

static void await(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
  CHECK(fd > 2);
  pid_t child = fork();
  if (child == 0) {
    if (strcmp(argv[2], "duplicated") == 0) {
      CHECK(dup2(fd, 1) == 1);
    } else {
      CHECK(close(0) == 0 && open(argv[1], O_RDWR) == 0);
    }
    _exit(0);
  }
  await(child);
  CHECK(pwrite(fd, "xyz", 3, 20000) == 3);
  child = fork();
  if (child == 0) {
    CHECK(ftruncate(fd, 10000) == 0 && pwrite(fd, "abc", 3, 0) == 3 && fsync(fd) == 0);
    _exit(0);
  }
  await(child);
  struct stat stat;
  char bytes[4] = "";
  CHECK(fstat(fd, &stat) == 0 && stat.st_size == 10000);
  CHECK(pread(fd, bytes, 3, 0) == 3 && strcmp(bytes, "abc") == 0);
  CHECK(fsync(fd) == 0 && close(fd) == 0);
  return 0;
}

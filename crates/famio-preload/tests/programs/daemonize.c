/* A daemon goes on behind what its parent has written. */
#include "check.h"

int main(int argc, char **argv) {
  int fd = open(argv[argc - 1], O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0 && write(fd, "head", 4) == 4);
  pid_t parent = getpid();
  CHECK(daemon(0, 1) == 0 && getpid() != parent && getsid(0) == getpid());
  char folder[8];
  CHECK(getcwd(folder, sizeof folder) && !strcmp(folder, "/"));
  CHECK(write(fd, "tail", 4) == 4 && close(fd) == 0);
  return 0;
}

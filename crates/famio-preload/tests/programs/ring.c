/* io_uring by number: refused while files are atomic, unless it is allowed. The exit status says which. */
#include "check.h"

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
  char parameters[256] = {0};
  CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
  for (int i = 0; i < 2; i++) {
    int ring = (int)syscall(SYS_io_uring_setup, 2, parameters);
    if (ring < 0) return errno == ENOSYS ? 10 : 11;
    close(ring);
  }
  return 12;
}

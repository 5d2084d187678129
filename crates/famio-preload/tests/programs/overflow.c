/* A checked read into a buffer that is too small ends the program. */
#include "check.h"

extern ssize_t __read_chk(int, void *, size_t, size_t);

int main(int argc, char **argv) {
  char buffer[8];
  int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  __read_chk(fd, buffer, 9, sizeof buffer);
  return 0;
}

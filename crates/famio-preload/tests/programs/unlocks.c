/* Writes under a lock of the open file description, and gives the lock up by closing the file. Continues after a
 * line on standard input. */
#include "check.h"
#include <sys/file.h>

static void wait_for_line(void) {
  char byte;
  CHECK(read(STDIN_FILENO, &byte, 1) == 1);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  if (strcmp(argv[2], "flock") == 0) {
    CHECK(flock(fd, LOCK_EX) == 0);
  } else {
    struct flock lock = {.l_type = F_WRLCK};
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
  }
  CHECK(write(fd, "written", 7) == 7 && write(STDOUT_FILENO, "\n", 1) == 1);
  wait_for_line();
  CHECK(close(fd) == 0);
  wait_for_line();
  return 0;
}

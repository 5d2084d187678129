/* epoch FILE MEGABYTES LETTER END: one epoch of that many megabytes; END is "sync" or "kill" (before a SYNC). */
#include "check.h"
#include <signal.h>

enum { PIECE = 1 << 16 };

int main(int argc, char **argv) {
  CHECK(argc == 5);
  static char piece[PIECE];
  int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  long pieces = atol(argv[2]) * ((1 << 20) / PIECE);
  for (long i = 0; i < pieces; i++) {
    memset(piece, argv[3][0], PIECE);
    memcpy(piece + i % 1000, &i, sizeof i); /* all different */
    CHECK(pwrite(fd, piece, PIECE, i * (long)PIECE) == PIECE);
  }
  /* Unsynced data is read as it was written. */
  for (long i = 0; i < pieces; i += 97) {
    CHECK(pread(fd, piece, PIECE, i * (long)PIECE) == PIECE);
    CHECK(memcmp(piece + i % 1000, &i, sizeof i) == 0);
    CHECK(piece[PIECE - 1] == argv[3][0]);
  }
  if (strcmp(argv[4], "kill") == 0)
    raise(SIGKILL);
  CHECK(fsync(fd) == 0);
  CHECK(close(fd) == 0);
  return 0;
}

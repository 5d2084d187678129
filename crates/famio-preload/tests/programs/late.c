/* Commits, and is killed long after its last write, right after a call that changes the file's inode but is not a
 * SYNC. */
#include "check.h"
#include <signal.h>
#include <time.h>
#include <utime.h>

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *name = argv[1], *what = argv[2];
#define IS(text) (strcmp(what, text) == 0)
  int fd = open(name, O_RDWR | O_CREAT | (IS("truncate") ? O_DSYNC : 0), 0600);
  CHECK(fd >= 0 && write(fd, "committed", 9) == 9 && fsync(fd) == 0);
  if (!IS("truncate")) CHECK(pwrite(fd, "gone", 4, 0) == 4);
  /* Recovery takes a change of the inode for an outsider's if it is more than 20 ms later than the last one that it
   * knows of. */
  struct timespec pause = {0, 60 * 1000 * 1000};
  CHECK(nanosleep(&pause, NULL) == 0);
  struct timespec times[2] = {{1000000000, 1}, {0, 0}};
  times[1].tv_sec = time(NULL) + 1000;
  if (IS("fallocate")) CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000) == 0);
  if (IS("futimens")) CHECK(futimens(fd, NULL) == 0);
  if (IS("utimensat")) CHECK(utimensat(AT_FDCWD, name, times, 0) == 0);
  if (IS("utime")) CHECK(utime(name, NULL) == 0);
  if (IS("truncate")) CHECK(truncate(name, 4) == 0);
  raise(SIGKILL);
}

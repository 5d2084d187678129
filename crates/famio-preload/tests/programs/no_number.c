/* A program that has used all descriptors that its soft limit allows, and its child, write the same file
 * alternately. Arguments: the atomic file. The hard limit is higher. */
#include "check.h"
#include <sys/resource.h>
#include <sys/wait.h>

static int filler[64], count;

/* Uses up all numbers. */
static void fill(rlim_t soft) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > 64);
  limit.rlim_cur = soft;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int fd; (fd = open("/", O_RDONLY | O_CLOEXEC)) >= 0;) filler[count++] = fd;
  CHECK(errno == EMFILE && filler[count - 1] == (int)soft - 1);
}

static void show(const char *path, off_t size) {
  struct stat there;
  CHECK(stat(path, &there) == 0 && there.st_size == size);
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  alarm(60); /* a failed child prints nothing more */
  closefrom(3);
  int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600), turns[2][2];
  CHECK(fd == 3 && pipe(turns[0]) == 0 && pipe(turns[1]) == 0);
  CHECK(pwrite(fd, "parent", 6, 0) == 6);
  char letter = 0;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    /* The parent's epoch is handed over here, and the child's own back. */
    fill(10);
    CHECK(pwrite(fd, "child", 5, 6) == 5);
    CHECK(write(turns[0][1], "x", 1) == 1 && read(turns[1][0], &letter, 1) == 1);
    CHECK(pwrite(fd, "again", 5, 11) == 5);
    _exit(0);
  }
  CHECK(read(turns[0][0], &letter, 1) == 1);
  fill(12);
  /* Before the file is open here again: what another process has not synced also shows by its name. */
  show(argv[1], 11);
  CHECK(pwrite(fd, "P", 1, 0) == 1);
  CHECK(write(turns[1][1], "x", 1) == 1 && waitpid(child, NULL, 0) == child);
  CHECK(pwrite(fd, "!", 1, 16) == 1 && fsync(fd) == 0);
  show(argv[1], 17);
  /* The next file begins its session with only as many free numbers as the program itself needs. */
  CHECK(close(filler[--count]) == 0);
  int other = open("atomic-2", O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(other == 11 && write(other, "other", 5) == 5 && fsync(other) == 0 && dup(other) == -1 && errno == EMFILE);
  CHECK(close(other) == 0 && dup(fd) == 11 && close(11) == 0);
  CHECK(close(fd) == 0);
  return 0;
}

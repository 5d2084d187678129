/* A child reads a file as its standard input, and then writes it, while its parent has changed it. The first argument is
 * the file, the second says by which descriptor the child writes. */
#include "check.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *path = argv[1];
  int is_inherited = strcmp(argv[2], "inherited") == 0, status = 0, ready[2], done[2];
  char byte;
  CHECK(pipe(ready) == 0 && pipe(done) == 0);
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && pwrite(fd, "AAAAAAAA", 8, 0) == 8 && fsync(fd) == 0 && pwrite(fd, "aaaa", 4, 8) == 4);
  pid_t child = fork();
  if (child == 0) {
    int own = fd;
    if (!is_inherited) CHECK(close(fd) == 0);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(close(0) == 0 && open(path, O_RDONLY) == 0);
    if (!is_inherited) {
      struct flock lock = {.l_type = F_RDLCK, .l_len = 10};
      CHECK(fcntl(0, F_SETLK, &lock) == 0);
      own = open(path, O_RDWR | (strcmp(argv[2], "cut") == 0 ? O_TRUNC : 0));
      if (own < 0) {
        CHECK(errno == EBUSY);
        if (fork() == 0) { /* the lock is still there */
          int look = open(path, O_RDONLY);
          lock.l_type = F_WRLCK;
          CHECK(fcntl(look, F_GETLK, &lock) == 0 && lock.l_type == F_RDLCK);
          _exit(5);
        }
        CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 5);
        CHECK(write(done[1], "", 1) == 1);
        _exit(0);
      }
    }
    CHECK(pwrite(own, "BBBB", 4, 0) == 4 && ftruncate(own, 100) == 0 && fsync(own) == 0);
    CHECK(write(done[1], "", 1) == 1);
    _exit(1);
  }
  CHECK(write(ready[1], "", 1) == 1 && read(done[0], &byte, 1) == 1);
  CHECK(pwrite(fd, "zz", 2, 20) == 2 && fsync(fd) == 0);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  char expected[100] = "AAAAAAAAaaaa", found[101];
  if (WEXITSTATUS(status) == 1) memcpy(expected, "BBBB", 4);
  memcpy(expected + 20, "zz", 2);
  CHECK(pread(fd, found, sizeof found, 0) == (WEXITSTATUS(status) == 1 ? 100 : 22));
  CHECK(memcmp(found, expected, 22) == 0);
  return WEXITSTATUS(status) != is_inherited; /* its own open is refused */
}

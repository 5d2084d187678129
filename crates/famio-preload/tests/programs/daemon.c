/* A daemon makes its log, opened to append, its standard output while its parent is about to end. */
#include "check.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
  const char *path = argv[argc - 1];
  int about[2], done[2];
  char said = 0;
  CHECK(pipe(about) == 0 && pipe(done) == 0);
  pid_t parent = fork();
  CHECK(parent >= 0);
  if (parent == 0) {
    int log = open(path, O_RDWR | O_CREAT | O_APPEND, 0644);
    CHECK(log >= 0 && write(log, "one", 3) == 3);
    pid_t daemon = fork();
    CHECK(daemon >= 0);
    if (daemon > 0) {
      CHECK(read(about[0], &said, 1) == 1);
      _exit(0);
    }
    CHECK(write(about[1], "a", 1) == 1 && close(1) == 0);
    CHECK(dup(log) == 1 && write(1, "two", 3) == 3);
    CHECK(write(done[1], "y", 1) == 1);
    _exit(0);
  }
  close(done[1]);
  CHECK(read(done[0], &said, 1) == 1 && said == 'y' && read(done[0], &said, 1) == 0);
  CHECK(waitpid(parent, NULL, 0) == parent);
  return 0;
}

/* The first write with few descriptors left, for several such numbers: it succeeds, if necessary by demoting the
 * file, and nothing is left. */
#include "check.h"
#include <sys/resource.h>

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  const char *path = argv[1];
  closefrom(3);
  struct rlimit limit = {64, 64};
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int left = 0; left < 24; left++) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), filler[64], n = 0;
    CHECK(fd >= 0);
    while ((filler[n] = open("/dev/null", O_RDWR)) >= 0) n++;
    for (int i = 0; i < left; i++) CHECK(n > 0 && close(filler[--n]) == 0);
    ssize_t done = write(fd, "written", 7);
    CHECK(done == 7 && fsync(fd) == 0);
    while (n > 0) CHECK(close(filler[--n]) == 0);
    CHECK(pwrite(fd, "written", 7, 0) == 7 && fsync(fd) == 0);
    CHECK(close(fd) == 0);
    CHECK(has(path, "written"));
    CHECK(access(".famio", F_OK) == -1);
  }
  return 0;
}

/* Calls on a file with a session, a hundred of each kind; or, beside a process that holds a session, a hundred visits;
 * or reads of a file that has just changed. What they cost is counted outside. An access to a path that is not there
 * says what begins. */
#include "check.h"
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 100 };

static char bytes[PAGE], there[PAGE];
static struct iovec vectors[3] = {{bytes, 100}, {bytes + 1000, 50}, {bytes + 2000, 10}};
static struct iovec into[3] = {{there, 100}, {there + 1000, 50}, {there + 2000, 10}};

#define STEP(name, check)                        \
  do {                                           \
    access("/cost-" name, F_OK);                 \
    for (int i = 0; i < PAGES; i++) CHECK(check); \
  } while (0)

static int visit(const char *file) {
  int fd = open(file, O_RDWR);
  return fd >= 0 && pread(fd, there, 160, PAGE) == 160 && there[0] == 'd' && close(fd) == 0;
}

static int look(const char *file) {
  struct stat found;
  return lstat(file, &found) == 0 && found.st_size == PAGE * PAGES;
}

int main(int argc, char **argv) {
  const char *file = argv[argc - 1];
  if (argc > 2 && strcmp(argv[1], "visit") == 0) {
    for (int i = 0; i < 3; i++) CHECK(visit(file));
    STEP("visit", visit(file));
    STEP("look", look(file));
    access("/cost-end", F_OK);
    return 0;
  }
  int fd = open(file, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  if (argc > 2 && strcmp(argv[1], "fresh") == 0) {
    CHECK(pwrite(fd, bytes, PAGE, 0) == PAGE && close(fd) == 0);
    fd = open(file, O_RDONLY);
    STEP("fresh", pread(fd, there, 160, 0) == 160);
    access("/cost-end", F_OK);
    CHECK(close(fd) == 0);
    return 0;
  }
  for (int round = 0; round < 4; round++) {
    memset(bytes, 'a' + round, PAGE);
    for (int i = 0; i < PAGES; i++) CHECK(pwrite(fd, bytes, PAGE, i * PAGE) == PAGE);
    CHECK(fsync(fd) == 0);
  }
  if (argc > 2 && strcmp(argv[1], "hold") == 0) {
    CHECK(puts("ready") >= 0 && fflush(stdout) == 0);
    return getchar() == EOF ? 0 : 1;
  }
  STEP("pread", pread(fd, there, 160, i * PAGE) == 160);
  STEP("pwrite", pwrite(fd, bytes, 160, i * PAGE) == 160);
  STEP("preadv", preadv(fd, into, 3, i * PAGE) == 160);
  STEP("pwritev", pwritev(fd, vectors, 3, i * PAGE) == 160);
  STEP("preadv2", preadv2(fd, into, 3, i * PAGE, 0) == 160);
  STEP("pwritev2", pwritev2(fd, vectors, 3, i * PAGE, 0) == 160);
  STEP("read", read(fd, there, 160) == 160);
  STEP("write", write(fd, bytes, 160) == 160);
  STEP("readv", readv(fd, into, 3) == 160);
  STEP("writev", writev(fd, vectors, 3) == 160);
  STEP("lseek", lseek(fd, i, SEEK_SET) == i && lseek(fd, 0, SEEK_END) == PAGE * PAGES);
  STEP("sync", pwrite(fd, bytes, 10, i * PAGE) == 10 && fsync(fd) == 0 && fdatasync(fd) == 0);
  STEP("ftruncate", ftruncate(fd, PAGE * PAGES) == 0);
  access("/cost-end", F_OK);
  CHECK(close(fd) == 0);
}

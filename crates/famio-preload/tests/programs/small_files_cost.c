/* Many small files, each open for a moment: what one costs is counted outside. An access to a path that is not there says
 * what begins. Files 0 to 9 warm up. */
#include "check.h"
#include <stdio.h>

enum { FILES = 30, WARM = 10, SIZE = 4096 };

static void once(const char *step, int number) {
  if (number == WARM)
    access(step, F_OK);
}

static void write_file(const char *name, int flags, int syncs) {
  static char bytes[SIZE];
  memset(bytes, 'a', SIZE);
  int fd = open(name, O_RDWR | flags, 0644);
  CHECK(fd >= 0 && pwrite(fd, bytes, SIZE, 0) == SIZE);
  CHECK((!syncs || fsync(fd) == 0) && close(fd) == 0);
}

int main(int argc, char **argv) {
  char name[300], other[300];
  int folder = open(argv[argc - 1], O_RDONLY | O_DIRECTORY);
  CHECK(folder >= 0);
  for (int i = 0; i < FILES; i++) {
    once("/cost-existing", i);
    snprintf(name, sizeof name, "%s/existing-%d.dat", argv[argc - 1], i);
    write_file(name, 0, 0);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-new", i);
    snprintf(name, sizeof name, "%s/new-%d.dat", argv[argc - 1], i);
    write_file(name, O_CREAT | O_EXCL, 0);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-synced", i);
    snprintf(name, sizeof name, "%s/synced-%d.dat", argv[argc - 1], i);
    write_file(name, O_CREAT | O_EXCL, 1);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-replaced", i);
    snprintf(name, sizeof name, "%s/temporary-%d.dat", argv[argc - 1], i);
    snprintf(other, sizeof other, "%s/existing-%d.dat", argv[argc - 1], i);
    write_file(name, O_CREAT | O_EXCL, 1);
    CHECK(rename(name, other) == 0 && fsync(folder) == 0);
  }
  access("/cost-end", F_OK);
  return 0;
}

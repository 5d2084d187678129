/* Many small files, each open for a moment: what one costs is counted outside. An access to a path that is not there says
 * what begins. Files 0 to 9 warm up. */
#include "check.h"
#include <stdio.h>
#include <sys/mman.h>

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

static void read_file(const char *name) {
  static char bytes[SIZE + 1];
  struct stat stat;
  int fd = open(name, O_RDONLY);
  CHECK(fd >= 0 && fstat(fd, &stat) == 0 && stat.st_size == SIZE);
  CHECK(read(fd, bytes, sizeof bytes) == SIZE && bytes[SIZE - 1] == 'a' && close(fd) == 0);
}

static void map_file(const char *name) {
  int fd = open(name, O_RDONLY);
  char *map = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(map != MAP_FAILED && map[SIZE - 1] == 'a' && munmap(map, SIZE) == 0 && close(fd) == 0);
}

static void append_to_file(const char *name) {
  int fd = open(name, O_WRONLY | O_APPEND);
  CHECK(fd >= 0 && write(fd, "more", 4) == 4 && close(fd) == 0);
}

int main(int argc, char **argv) {
  char name[300], other[300];
  struct stat stat;
  const char *path = argv[argc - 1];
  int folder = open(path, O_RDONLY | O_DIRECTORY);
  CHECK(folder >= 0);
  for (int i = 0; i < FILES; i++) {
    once("/cost-existing", i);
    snprintf(name, sizeof name, "%s/existing-%d.dat", path, i);
    write_file(name, 0, 0);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-new", i);
    snprintf(name, sizeof name, "%s/new-%d.dat", path, i);
    write_file(name, O_CREAT | O_EXCL, 0);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-synced", i);
    snprintf(name, sizeof name, "%s/synced-%d.dat", path, i);
    write_file(name, O_CREAT | O_EXCL, 1);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-replaced", i);
    snprintf(name, sizeof name, "%s/temporary-%d.dat", path, i);
    snprintf(other, sizeof other, "%s/existing-%d.dat", path, i);
    write_file(name, O_CREAT | O_EXCL, 1);
    CHECK(rename(name, other) == 0 && fsync(folder) == 0);
  }
  access("/cost-end", F_OK);
  usleep(100000); /* the times of the files are their own from here on */
  for (int i = 0; i < FILES; i++) {
    once("/cost-read", i);
    snprintf(name, sizeof name, "%s/existing-%d.dat", path, i);
    read_file(name);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-mapped", i);
    snprintf(name, sizeof name, "%s/existing-%d.dat", path, i);
    map_file(name);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-looked-at", i);
    snprintf(name, sizeof name, "existing-%d.dat", i);
    CHECK(fstatat(folder, name, &stat, AT_SYMLINK_NOFOLLOW) == 0 && stat.st_size == SIZE);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-appended-to", i);
    snprintf(name, sizeof name, "%s/existing-%d.dat", path, i);
    append_to_file(name);
  }
  access("/cost-end", F_OK);
  for (int i = 0; i < FILES; i++) {
    once("/cost-removed", i);
    snprintf(name, sizeof name, "existing-%d.dat", i);
    CHECK(unlinkat(folder, name, 0) == 0);
  }
  access("/cost-end", F_OK);
  return 0;
}

/* Many small files, each open for a moment: what one costs is counted outside. An access to a path that is not there says
 * what begins. Files 0 to 9 warm up. */
#include "check.h"
#include <stdio.h>
#include <sys/mman.h>

enum { FILES = 30, WARM = 10, SIZE = 4096 };

static int folder;
static const char *path;

/* The path of a file, or its name in the folder. */
static const char *name_of(const char *kind, int number, int whole) {
  static char names[2][300];
  static int next;
  char *name = names[next ^= 1];
  snprintf(name, sizeof names[0], "%s%s%s-%d.dat", whole ? path : "", whole ? "/" : "", kind, number);
  return name;
}

static void write_file(const char *name, int flags, int syncs) {
  static char bytes[SIZE];
  memset(bytes, 'a', SIZE);
  int fd = open(name, O_RDWR | flags, 0644);
  CHECK(fd >= 0 && pwrite(fd, bytes, SIZE, 0) == SIZE);
  CHECK((!syncs || fsync(fd) == 0) && close(fd) == 0);
}

static void existing(int i) { write_file(name_of("existing", i, 1), 0, 0); }

static void new(int i) { write_file(name_of("new", i, 1), O_CREAT | O_EXCL, 0); }

static void synced(int i) { write_file(name_of("synced", i, 1), O_CREAT | O_EXCL, 1); }

static void replaced(int i) {
  const char *name = name_of("temporary", i, 1);
  write_file(name, O_CREAT | O_EXCL, 1);
  CHECK(rename(name, name_of("existing", i, 1)) == 0 && fsync(folder) == 0);
}

static void read_one(int i) {
  static char bytes[SIZE + 1];
  struct stat stat;
  int fd = open(name_of("existing", i, 1), O_RDONLY);
  CHECK(fd >= 0 && fstat(fd, &stat) == 0 && stat.st_size == SIZE);
  CHECK(read(fd, bytes, sizeof bytes) == SIZE && bytes[SIZE - 1] == 'a' && close(fd) == 0);
}

static void mapped(int i) {
  int fd = open(name_of("existing", i, 1), O_RDONLY);
  char *map = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(map != MAP_FAILED && map[SIZE - 1] == 'a' && munmap(map, SIZE) == 0 && close(fd) == 0);
}

static void looked_at(int i) {
  struct stat stat;
  CHECK(fstatat(folder, name_of("existing", i, 0), &stat, AT_SYMLINK_NOFOLLOW) == 0 && stat.st_size == SIZE);
}

static void appended_to(int i) {
  int fd = open(name_of("existing", i, 1), O_WRONLY | O_APPEND);
  CHECK(fd >= 0 && write(fd, "more", 4) == 4 && close(fd) == 0);
}

static void removed(int i) { CHECK(unlinkat(folder, name_of("existing", i, 0), 0) == 0); }

static void each(const char *step, void (*one)(int)) {
  for (int i = 0; i < FILES; i++) {
    if (i == WARM)
      access(step, F_OK);
    one(i);
  }
  access("/cost-end", F_OK);
}

int main(int argc, char **argv) {
  path = argv[argc - 1];
  folder = open(path, O_RDONLY | O_DIRECTORY);
  CHECK(folder >= 0);
  each("/cost-existing", existing);
  each("/cost-new", new);
  each("/cost-synced", synced);
  each("/cost-replaced", replaced);
  usleep(100000); /* the times of the files are their own from here on */
  each("/cost-read", read_one);
  each("/cost-mapped", mapped);
  each("/cost-looked-at", looked_at);
  each("/cost-appended-to", appended_to);
  each("/cost-removed", removed);
  return 0;
}

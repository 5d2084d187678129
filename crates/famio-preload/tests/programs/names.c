/* Names that change while the file is open. Usage: names FILE WHAT [number]. The file holds "old"; the test defines the
 * final state. With "number", the calls are made by syscall(2). */
#include "check.h"
#include <signal.h>

static const char *path;

static bool by_number;
#ifndef SYS_rename
#define SYS_rename -1
#define SYS_unlink -1
#define SYS_link -1
#define OLD false
#else
#define OLD true
#endif
static int rename_by(const char *from, const char *to) {
  if (!by_number) return rename(from, to);
  if (OLD) return (int)syscall(SYS_rename, from, to);
  return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}
static int exchange(const char *from, const char *to) {
  if (by_number) return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
}
static int unlink_by(const char *name) {
  if (!by_number) return unlink(name);
  return (int)(OLD ? syscall(SYS_unlink, name) : syscall(SYS_unlinkat, AT_FDCWD, name, 0));
}
static int link_by(const char *from, const char *to) {
  if (!by_number) return link(from, to);
  return (int)(OLD ? syscall(SYS_link, from, to) : syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}
static int opened(const char *name) {
  int fd = open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  return fd;
}
static void put(int fd, const char *text, off_t at) { CHECK(pwrite(fd, text, strlen(text), at) == (ssize_t)strlen(text)); }
static bool holds(int fd, const char *text) {
  char seen[64];
  ssize_t n = pread(fd, seen, sizeof seen, 0);
  return n == (ssize_t)strlen(text) && memcmp(seen, text, (size_t)n) == 0;
}
static const char *beside(const char *name) {
  static char names[4][64];
  static int next;
  char *to = names[next++ % 4];
  snprintf(to, sizeof names[0], "%s%s", path, name);
  return to;
}
static const char *elsewhere(void) {
  static char name[64];
  snprintf(name, sizeof name, "folder/%s", path);
  return name;
}
/* Lets the test do its part. */
static void your_turn(void) {
  char byte;
  CHECK(write(1, "\n", 1) == 1 && read(0, &byte, 1) == 1);
}

int main(int argc, char **argv) {
  CHECK(argc == 3 || argc == 4);
  by_number = argc == 4;
  path = argv[1];
  const char *what = argv[2];
#define IS(name) (strcmp(what, name) == 0)
  if (IS("over") || IS("exchange")) {
    const char *other = beside("-other");
    int a = opened(path), b = opened(other);
    put(a, "from", 0);
    put(b, "that", 0);
    CHECK((IS("over") ? rename_by(path, other) : exchange(path, other)) == 0);
    CHECK(holds(a, "from") && holds(b, "that"));
    put(a, " here", 4);
    put(b, " there", 4);
    CHECK(fsync(a) == 0 && fsync(b) == 0);
    CHECK(holds(a, "from here") && holds(b, "that there"));
    CHECK(close(a) == 0 && close(b) == 0);
    return 0;
  }
  int fd = opened(path);
  struct stat st;
  if (IS("unlink-first")) {
    CHECK(unlink_by(path) == 0);
    put(fd, "anew", 0);
    CHECK(fsync(fd) == 0 && holds(fd, "anew") && fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 4);
    CHECK(close(fd) == 0);
    return 0;
  }
  put(fd, "first", 0);
  if (IS("dirty")) {
    CHECK(rename_by(path, elsewhere()) == 0);
  } else if (IS("clean")) {
    CHECK(fsync(fd) == 0 && rename_by(path, elsewhere()) == 0);
  } else if (IS("same")) {
    CHECK(rename_by(path, beside("-other")) == 0);
  } else if (IS("link")) {
    CHECK(link_by(path, beside("-other")) == 0);
  } else if (IS("link-unlink")) {
    CHECK(link_by(path, beside("-other")) == 0);
    put(fd, "FIRST", 0);
    CHECK(unlink_by(path) == 0);
  } else if (IS("failed")) {
    /* The call fails: nothing may be different. */
    FAILS(rename_by(path, "no such folder/name"), ENOENT);
    FAILS(link_by(path, path), EEXIST);
    FAILS(unlinkat(AT_FDCWD, path, AT_REMOVEDIR), ENOTDIR);
  } else if (IS("unlink") || IS("unlink-clean")) {
    if (IS("unlink-clean")) CHECK(fsync(fd) == 0);
    CHECK(unlink_by(path) == 0 && holds(fd, "first"));
    /* A new file with the same name is a different file. */
    int other = opened(path);
    put(other, "other", 0);
    put(fd, ", then", 5);
    CHECK(holds(other, "other") && holds(fd, "first, then"));
    CHECK(fsync(other) == 0 && fsync(fd) == 0 && ftruncate(fd, 5) == 0 && holds(fd, "first"));
    CHECK(close(other) == 0);
    put(fd, " again", 5);
    CHECK(holds(fd, "first again"));
  } else if (IS("killed")) {
    CHECK(rename_by(path, elsewhere()) == 0);
    raise(SIGKILL);
  } else if (IS("killed-later")) {
    CHECK(rename_by(path, elsewhere()) == 0);
    put(fd, ", then", 5);
    CHECK(fsync(fd) == 0);
    put(fd, "never committed", 0);
    raise(SIGKILL);
  } else if (IS("outsider") || IS("outsider-clean")) {
    if (IS("outsider-clean")) CHECK(fsync(fd) == 0);
    your_turn();
  } else {
    CHECK(!"known");
  }
  if (!IS("unlink") && !IS("unlink-clean")) {
    put(fd, ", then", 5);
    CHECK(holds(fd, IS("link-unlink") ? "FIRST, then" : "first, then"));
    CHECK(fstat(fd, &st) == 0 && st.st_size == 11);
  }
  CHECK(close(fd) == 0);
  return 0;
}

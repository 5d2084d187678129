/* One process has written a file that another one has open, which removes its only name. Each still sees what the other
 * one writes. Usage: names_shared FILE HOW: `reads` (the one that removes it), `writes`, or `came` (it has done nothing
 * else yet). */
#include "check.h"
#include <sys/wait.h>

static int to_child[2], to_parent[2];

static void tell(int *pipe) { CHECK(write(pipe[1], "", 1) == 1); }
static void wait_for(int *pipe) {
  char byte;
  CHECK(read(pipe[0], &byte, 1) == 1);
}
static void put(int fd, const char *text, off_t at) { CHECK(pwrite(fd, text, 4, at) == 4); }
static void sees(int fd, const char *text) {
  char seen[64];
  CHECK(pread(fd, seen, sizeof seen, 0) == (ssize_t)strlen(text) && memcmp(seen, text, strlen(text)) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *path = argv[1], *how = argv[2];
  bool writes = strcmp(how, "reads") != 0;
  int status, fd;
  CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
  fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0);
  put(fd, "....", 0);
  put(fd, "....", 4);
  CHECK(close(fd) == 0);
  pid_t child = fork();
  if (child == 0) {
    fd = open(path, O_RDWR);
    put(fd, "one.", 0);
    CHECK(fd >= 0 && fsync(fd) == 0);
    put(fd, "two.", 0);
    tell(to_parent);
    wait_for(to_child); /* the name is gone */
    sees(fd, "two.....");
    put(fd, "mine", 0);
    tell(to_parent);
    wait_for(to_child);
    sees(fd, writes ? "mineyour" : "mine....");
    put(fd, "more", 8);
    CHECK(fsync(fd) == 0);
    tell(to_parent);
    wait_for(to_child);
    CHECK(close(fd) == 0);
    exit(0);
  }
  fd = open(path, writes ? O_RDWR : O_RDONLY);
  wait_for(to_parent);
  if (strcmp(how, "came") != 0) sees(fd, "two.....");
  CHECK(unlink(path) == 0);
  tell(to_child);
  wait_for(to_parent);
  sees(fd, "mine....");
  if (writes) put(fd, "your", 4);
  tell(to_child);
  wait_for(to_parent);
  sees(fd, writes ? "mineyourmore" : "mine....more");
  tell(to_child);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  sees(fd, writes ? "mineyourmore" : "mine....more");
  CHECK(close(fd) == 0);
  return 0;
}

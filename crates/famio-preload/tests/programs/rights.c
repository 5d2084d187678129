/* Rights that are missing when a file is written, recovered or closed. The first argument is the file, the second
 * the case. */
#include "check.h"
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>

#define NOBODY 65534

static void become_nobody(void) {
  CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static void put(int fd, const char *text, off_t at) {
  CHECK(pwrite(fd, text, strlen(text), at) == (ssize_t)strlen(text));
}

/* Commits, writes more, and is killed. */
static void die(int fd) {
  put(fd, "committed", 0);
  CHECK(fsync(fd) == 0);
  put(fd, "XXXX", 2);
  raise(SIGKILL);
}

static void worker(int fd, const char *text, off_t at, int told, int tells) {
  char byte = 0;
  become_nobody();
  CHECK(write(tells, &byte, 1) == 1);
  CHECK(read(told, &byte, 1) == 1);
  put(fd, text, at);
  CHECK(fsync(fd) == 0);
  CHECK(write(tells, &byte, 1) == 1);
  /* It keeps the file open until the other process has written, too. */
  CHECK(read(told, &byte, 1) == 1);
  CHECK(close(fd) == 0);
  _exit(0);
}

static void workers(const char *path) {
  int fd = open(path, O_RDWR), told[2][2], tells[2];
  char byte = 'x';
  CHECK(fd >= 0 && pipe(told[0]) == 0 && pipe(told[1]) == 0 && pipe(tells) == 0);
  pid_t children[2];
  for (int i = 0; i < 2; i++) {
    children[i] = fork();
    if (children[i] == 0) {
      worker(fd, i == 0 ? "first" : "second", i * 10, told[i][0], tells[1]);
    }
  }
  /* By now both have attached to the file: a process that comes later finds it demoted, and prints nothing. */
  CHECK(read(tells[0], &byte, 1) == 1 && read(tells[0], &byte, 1) == 1);
  for (int i = 0; i < 2; i++) {
    CHECK(write(told[i][1], &byte, 1) == 1);
    CHECK(read(tells[0], &byte, 1) == 1);
  }
  for (int i = 0; i < 2; i++) {
    int status = 0;
    CHECK(write(told[i][1], &byte, 1) == 1);
    CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
  }
  char all[17];
  CHECK(pread(fd, all, 16, 0) == 16 && memcmp(all, "first", 5) == 0 && memcmp(all + 10, "second", 6) == 0);
  CHECK(close(fd) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *path = argv[1], *what = argv[2];
  if (strcmp(what, "kill a read-only one") == 0) {
    become_nobody();
    die(open(path, O_RDWR | O_CREAT | O_EXCL, 0444));
  } else if (strcmp(what, "kill") == 0) {
    become_nobody();
    die(open(path, O_RDWR));
  } else if (strcmp(what, "read") == 0) {
    become_nobody();
    CHECK(has(path, "committed"));
  } else if (strcmp(what, "write") == 0) {
    become_nobody();
    for (int i = 0; i < 3; i++) {
      int fd = open(path, O_RDWR);
      put(fd, "rewritten", 0);
      CHECK(fsync(fd) == 0);
      CHECK(close(fd) == 0);
    }
    CHECK(has(path, "rewritten"));
  } else if (strcmp(what, "be refused") == 0) {
    become_nobody();
    int fd = open(path, O_RDWR);
    FAILS(write(fd, "refused", 7), EACCES);
    FAILS(ftruncate(fd, 3), EACCES);
    CHECK(close(fd) == 0);
    CHECK(has(path, "as it was"));
  } else if (strcmp(what, "chroot") == 0) {
    CHECK(mkdir("jail", 0755) == 0 && chroot("jail") == 0 && chdir("/") == 0);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0);
    put(fd, "in jail", 0);
    CHECK(fsync(fd) == 0);
    CHECK(close(fd) == 0);
    CHECK(has(path, "in jail"));
    CHECK(access("/.famio", F_OK) == -1);
  } else if (strcmp(what, "workers") == 0) {
    workers(path);
  } else {
    CHECK(!"known");
  }
  return 0;
}

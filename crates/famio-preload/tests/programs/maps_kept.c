/* Stores in shared maps that a SYNC must not lose. Usage: maps_kept FILE again|exec|child|protect|advice. It is killed at the
 * end, so that the file has what was synced. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGE 4096
static const char *path;
static int fd;

static char *map(int prot, size_t length) {
  char *at = mmap(NULL, length, prot, MAP_SHARED, fd, 0);
  CHECK(at != MAP_FAILED);
  return at;
}

/* A SYNC that fails before it has a journal, on a full disk: the next one has to find the stores again. */
static void again(void) {
  static char zeros[PAGE];
  char *at = map(PROT_READ | PROT_WRITE, 4 * PAGE);
  at[0] = 'A';
  CHECK(msync(at, PAGE, MS_SYNC) == 0);
  CHECK(link(path, "other") == 0 && unlink("other") == 0); /* ends the session */
  at[PAGE] = 'X';
  int full = open("full", O_WRONLY | O_CREAT, 0600);
  CHECK(full >= 0);
  while (write(full, zeros, PAGE) == PAGE);
  CHECK(errno == ENOSPC && msync(at, PAGE, MS_SYNC) < 0);
  CHECK(unlink("full") == 0 && close(full) == 0);
  CHECK(msync(at, PAGE, MS_SYNC) == 0);
}

/* An exec that fails: the process goes on, and its maps are those of the file. */
static void execs(void) {
  char *at = map(PROT_READ | PROT_WRITE, 4 * PAGE);
  at[0] = 'A';
  CHECK(msync(at, PAGE, MS_SYNC) == 0);
  for (int round = 0; round < 3; round++) {
    char *none[] = {"none", NULL};
    CHECK(execv("/none", none) < 0 && at[0] == 'A');
    at[PAGE + round] = 'X';
    CHECK(round == 1 || msync(at, PAGE, MS_SYNC) == 0);
    CHECK(pwrite(fd, "W", 1, 2 * PAGE + round) == 1 && at[2 * PAGE + round] == 'W');
    CHECK(fsync(fd) == 0);
  }
}

/* A child stores through its map, and the parent has made its own anew. */
static void child(void) {
  int ends[2][2];
  char byte = 0;
  CHECK(pipe(ends[0]) == 0 && pipe(ends[1]) == 0);
  char *at = map(PROT_READ | PROT_WRITE, 2 * PAGE);
  at[0] = 'A';
  CHECK(msync(at, PAGE, MS_SYNC) == 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    for (int round = 0; round < 2; round++) {
      CHECK(read(ends[0][0], &byte, 1) == 1);
      at[PAGE + round] = 'c';
      CHECK(write(ends[1][1], &byte, 1) == 1);
    }
    pause();
  }
  CHECK((at = mremap(at, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE)) != MAP_FAILED);
  for (int round = 0; round < 2; round++) {
    CHECK(msync(at, PAGE, MS_SYNC) == 0);
    CHECK(write(ends[0][1], &byte, 1) == 1 && read(ends[1][0], &byte, 1) == 1);
    CHECK(msync(at, PAGE, MS_SYNC) == 0);
    CHECK(munmap(at, 4 * PAGE) == 0);
    at = map(PROT_READ | PROT_WRITE, 4 * PAGE);
  }
  kill(pid, SIGKILL);
}

/* A child may not make a map of its parent's one for storing. */
static void protect(void) {
  CHECK(pwrite(fd, "B", 1, 0) == 1);
  char *at = map(PROT_READ, PAGE);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) _exit(mprotect(at, PAGE, PROT_READ | PROT_WRITE) < 0 && errno == EBUSY ? 0 : 1);
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHECK(fsync(fd) == 0);
}

/* Pages that are given up by the other call that can do so. */
static void advice(void) {
  char *at = map(PROT_READ | PROT_WRITE, 4 * PAGE);
  at[PAGE] = 'X';
  CHECK(fsync(fd) == 0);
  int self = syscall(SYS_pidfd_open, getpid(), 0);
  struct iovec part = {at, 4 * PAGE};
  CHECK(syscall(SYS_process_madvise, self, &part, 1, MADV_DONTNEED, 0) < 0 && errno == EINVAL);
  CHECK(at[PAGE] == 'X');
  at[PAGE + 1] = 'Y';
  CHECK(fsync(fd) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  path = argv[1];
  CHECK((fd = open(path, O_RDWR)) >= 0);
  if (!strcmp(argv[2], "again")) again();
  if (!strcmp(argv[2], "exec")) execs();
  if (!strcmp(argv[2], "child")) child();
  if (!strcmp(argv[2], "protect")) protect();
  if (!strcmp(argv[2], "advice")) advice();
  fflush(stdout);
  kill(getpid(), SIGKILL);
}

/* Files of a group: `atomic-a` and `atomic-b`. Argument: what to do. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { BYTES = 6000 };

static int open_so(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  return fd;
}

static void put(int fd, uint64_t value) {
  static uint64_t buffer[BYTES / 8];
  for (size_t i = 0; i < BYTES / 8; i++) buffer[i] = value;
  CHECK(pwrite(fd, buffer, BYTES, 0) == BYTES);
}

static void die(void) { kill(getpid(), SIGKILL); }

/* Both files get the same number, one is synced; committed numbers are reported on stdout. */
static void rounds(int a, int b) {
  uint64_t round = 0;
  CHECK(pread(a, &round, sizeof round, 0) >= 0);
  for (;;) {
    round++;
    put(a, round);
    if (round % 3 == 0) CHECK(ftruncate(b, 100) == 0 && ftruncate(b, 9000) == 0);
    put(b, round);
    int fd = round % 2 ? a : b;
    CHECK((round % 5 ? fdatasync(fd) : fsync(fd)) == 0);
    CHECK(write(1, &round, sizeof round) == sizeof round);
  }
}

static void mapped(int a, int b) {
  put(a, 1);
  put(b, 1);
  CHECK(fsync(a) == 0);
  uint64_t *maps[2];
  for (int i = 0; i < 2; i++) {
    maps[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, i ? b : a, 0);
    CHECK(maps[i] != MAP_FAILED);
    for (int word = 0; word < 512; word++) maps[i][word] = 2;
  }
  CHECK(msync(maps[0], 4096, MS_SYNC) == 0);
  die();
}

/* A child reads what its parent has not committed, and has the files once that is committed. */
static void forked(int a, int b) {
  put(b, 7);
  pid_t child = fork();
  if (child == 0) {
    uint64_t there;
    CHECK(pread(b, &there, sizeof there, 0) == sizeof there && there == 7);
    FAILS(pwrite(b, "x", 1, 0), EBUSY);
    FAILS(fsync(b), EBUSY);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  put(a, 7);
  CHECK(fsync(a) == 0);
  child = fork();
  if (child == 0) {
    put(a, 8);
    put(b, 8);
    CHECK(fsync(a) == 0);
    die();
  }
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  die();
}

/* What a process has not committed stays with it until its exit, which commits the group. */
static void exited(int a, int b) {
  int there[2], back[2];
  char byte = 0;
  CHECK(pipe(there) == 0 && pipe(back) == 0);
  pid_t child = fork();
  if (child == 0) {
    put(a, 9);
    put(b, 9);
    CHECK(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1);
    exit(0);
  }
  CHECK(read(there[0], &byte, 1) == 1);
  FAILS(pwrite(a, &byte, 1, 0), EBUSY);
  CHECK(write(back[1], &byte, 1) == 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  die();
}

/* A call that would have taken the name, and failed, leaves the file in its group. */
static void kept(int a, int b) {
  put(a, 1);
  CHECK(mkdir("folder", 0700) == 0);
  FAILS(rename("folder", "atomic-a"), ENOTDIR);
  put(a, 5);
  put(b, 5);
  CHECK(fsync(a) == 0);
  put(a, 6);
  die();
}

/* An exec that fails leaves the files in their group. */
static void executed(int a, int b) {
  put(a, 1);
  put(b, 1);
  char *words[] = {"none", NULL};
  FAILS(execv("./none", words), ENOENT);
  put(a, 10);
  put(b, 10);
  CHECK(fsync(a) == 0);
  put(b, 11);
  die();
}

/* What a killed process has stored and written is not committed by its child, which has its map. */
static void inherited(int a, int b) {
  put(a, 11);
  put(b, 11);
  CHECK(fsync(b) == 0);
  uint64_t *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0);
  CHECK(map != MAP_FAILED);
  int there[2];
  char byte;
  CHECK(pipe(there) == 0);
  if (fork() == 0) {
    close(there[1]);
    CHECK(read(there[0], &byte, 1) == 0);
    CHECK(pread(a, &byte, 1, 0) == 1 && byte == 11 && map[1] == 11);
    CHECK(fsync(a) == 0);
    die();
  }
  put(a, 12);
  put(b, 12);
  map[1] = 13;
  die();
}

static void closed(int a, int b) {
  put(a, 3);
  put(b, 3);
  CHECK(close(b) == 0);
  die();
}

static void renamed(int a, int b) {
  put(a, 4);
  put(b, 4);
  CHECK(rename("atomic-b", "atomic-c") == 0 && rename("atomic-c", "atomic-b") == 0);
  die();
}

static void errors(int a, int b) {
  put(a, 1);
  put(b, 1);
  /* As a standard stream it would be the kernel's. */
  FAILS(dup2(b, 0), EBUSY);
  CHECK(fsync(b) == 0);
  /* Other users could read in the record what they may not read in the file. */
  CHECK(fchmod(b, 0644) == 0);
  put(a, 2);
  put(b, 2);
  FAILS(fsync(a), EXDEV);
  FAILS(fsync(b), EXDEV);
  CHECK(fchmod(b, 0600) == 0);
  CHECK(fsync(a) == 0);
  FAILS(open("atomic-both", O_RDWR | O_CREAT, 0600), EINVAL);
  die();
}

int main(int count, char **words) {
  CHECK(count == 2);
  int a = open_so("atomic-a"), b = open_so("atomic-b");
  const struct {
    const char *name;
    void (*run)(int, int);
  } all[] = {{"rounds", rounds}, {"mapped", mapped}, {"forked", forked},
             {"closed", closed}, {"renamed", renamed}, {"errors", errors},
             {"kept", kept}, {"exited", exited}, {"executed", executed}, {"inherited", inherited}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (strcmp(all[i].name, words[1]) == 0) all[i].run(a, b);
  CHECK(false);
}

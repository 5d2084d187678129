/* Another program makes the file immutable while it has a journal. The first argument is the file, the second the
 * case. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define OLD 20000 /* initial size, filled with 'a' */
#define SIZE 15000 /* size after the committed epoch, which contains 'B' */
#define FROM 5000
#define TO 9100

static char is(off_t at) { return at >= FROM && at < TO ? 'B' : 'a'; }

static void put(int fd, char letter, off_t from, off_t to) {
  static char bytes[OLD];
  memset(bytes, letter, sizeof bytes);
  CHECK(pwrite(fd, bytes, (size_t)(to - from), from) == to - from);
}

/* Writes, commits, and writes more, which extends the file. */
static int change(const char *path) {
  int fd = open(path, O_RDWR);
  CHECK(fd >= 0);
  put(fd, 'B', FROM, TO);
  CHECK(ftruncate(fd, SIZE) == 0);
  CHECK(fsync(fd) == 0);
  return fd;
}

static void is_committed(const char *bytes) {
  for (off_t at = 0; at < SIZE; at++) {
    CHECK(bytes[at] == is(at));
  }
}

static void reads(const char *path) {
  static char bytes[OLD];
  struct stat stat;
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  CHECK(fstat(fd, &stat) == 0 && stat.st_size == SIZE);
  CHECK(read(fd, bytes, sizeof bytes) == SIZE);
  is_committed(bytes);
  CHECK(read(fd, bytes, sizeof bytes) == 0);
  CHECK(lseek(fd, 0, SEEK_END) == SIZE);
  memset(bytes, 0, sizeof bytes);
  CHECK(pread(fd, bytes + FROM - 1, 2, FROM - 1) == 2 && bytes[FROM - 1] == 'a' && bytes[FROM] == 'B');
  char *private = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0), *shared = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(private != MAP_FAILED && shared != MAP_FAILED);
  is_committed(private);
  is_committed(shared);
  CHECK(munmap(private, SIZE) == 0 && munmap(shared, SIZE) == 0);
  FAILS(open(path, O_RDWR), EPERM);
  CHECK(close(fd) == 0);
}

/* chattr, by a program without the library. */
static void chattr(const char *flag, const char *path) {
  pid_t child = fork();
  if (child == 0) {
    char *none[] = {NULL};
    execve("/usr/bin/chattr", (char *[]){"chattr", (char *)flag, (char *)path, NULL}, none);
    _exit(127);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *path = argv[1], *what = argv[2];
  if (strcmp(what, "die") == 0) {
    int fd = change(path);
    put(fd, 'X', 100, 200);
    put(fd, 'X', OLD, OLD + 5000);
    raise(SIGKILL);
  } else if (strcmp(what, "read") == 0) {
    reads(path);
  } else if (strcmp(what, "close") == 0) {
    int fd = change(path);
    chattr("+i", path);
    /* If nothing is left to be written to the file, nothing can fail. */
    CHECK(close(fd) == 0 || errno == EPERM);
    reads(path);
  } else if (strcmp(what, "read on") == 0) {
    /* A process that has it open when it becomes writable again then sees other processes' writes. */
    char byte = 0;
    int fd = open(path, O_RDONLY);
    CHECK(pread(fd, &byte, 1, FROM) == 1 && byte == 'B');
    chattr("-i", path);
    CHECK(pread(fd, &byte, 1, FROM) == 1 && byte == 'B');
    pid_t child = fork();
    if (child == 0) {
      int own = open(path, O_RDWR);
      put(own, 'C', FROM, FROM + 1);
      _exit(fsync(own));
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pread(fd, &byte, 1, FROM) == 1 && byte == 'C');
    CHECK(close(fd) == 0);
  } else {
    CHECK(!"known");
  }
  return 0;
}

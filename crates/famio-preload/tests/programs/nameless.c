/* A process has a new file, which grows, and another one takes its name away. The arguments are a folder and how. */
#include "check.h"
#include <sys/wait.h>

static char path[4096], other[4096];

/* `unlink`, `replace`, `link` (the file keeps a second name), or `folder`, which goes, too; without the library, but for
 * the last. */
static void take_away(const char *how, const char *folder) {
  if (strcmp(how, "replace") == 0) {
    int fd = open(other, O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && close(fd) == 0 && inlined(SYS_rename, (long)other, (long)path, 0, 0) == 0);
    return;
  }
  if (strcmp(how, "folder") == 0) {
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    return;
  }
  if (strcmp(how, "link") == 0) CHECK(inlined(SYS_link, (long)path, (long)other, 0, 0) == 0);
  CHECK(inlined(SYS_unlink, (long)path, 0, 0, 0) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *folder = argv[1], *how = argv[2];
  int tells[2], told[2], status;
  char byte = 0, found[64];
  struct stat stat_;
  CHECK(mkdir(folder, 0755) == 0 && pipe(tells) == 0 && pipe(told) == 0);
  snprintf(path, sizeof path, "%s/atomic", folder);
  snprintf(other, sizeof other, "%s/other", folder);
  pid_t child = fork(); /* before the file is open: otherwise the parent's file gets a session */
  if (child == 0) {
    CHECK(read(tells[0], &byte, 1) == 1);
    take_away(how, folder);
    CHECK(write(told[1], &byte, 1) == 1);
    exit(0);
  }
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
  CHECK(fd >= 0 && write(fd, "hello", 5) == 5 && write(fd, "again", 5) == 5); /* no SYNC: it goes on growing from 0 */
  CHECK(write(tells[1], &byte, 1) == 1 && read(told[0], &byte, 1) == 1);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(write(fd, "more", 4) == 4 && pwrite(fd, "HE", 2, 0) == 2);
  CHECK(pread(fd, found, sizeof found, 0) == 14 && memcmp(found, "HElloagainmore", 14) == 0);
  CHECK(fstat(fd, &stat_) == 0 && stat_.st_size == 14);
  CHECK(fsync(fd) == 0 && ftruncate(fd, 3) == 0 && fstat(fd, &stat_) == 0 && stat_.st_size == 3);
  CHECK(write(fd, "end", 3) == 3 && close(fd) == 0);
  if (strcmp(how, "link") == 0) {
    fd = open(other, O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &stat_) == 0 && stat_.st_size == 17 && close(fd) == 0 && unlink(other) == 0);
  }
  return 0;
}

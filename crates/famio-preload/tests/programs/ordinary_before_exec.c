/* A file is opened as standard input, closed, and opened again; then a program follows by exec that opens it by its name,
 * too. The first argument is the file, the second how it is opened before the exec. */
#include "check.h"

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *path = argv[1];
  int reads = strcmp(argv[2], "reads") == 0;
  char found[8] = "";
  if (argc == 3) {
    CHECK(close(0) == 0 && open(path, O_RDWR | O_CREAT, 0600) == 0 && close(0) == 0);
    CHECK(open(path, reads ? O_RDONLY : strcmp(argv[2], "writes") == 0 ? O_RDWR : O_WRONLY) == 0);
    int fd = open(path, O_RDWR);
    CHECK(fd > 2 && ftruncate(fd, 100000) == 0 && close(fd) == 0);
    execl("/proc/self/exe", argv[0], path, argv[2], "after", NULL);
    CHECK(0);
  }
  int fd = open(path, O_RDWR | O_TRUNC);
  CHECK(fd > 2 && lseek(0, 0, SEEK_END) == 0);
  CHECK(pwrite(reads ? fd : 0, "ab", 2, 0) == 2 && pwrite(fd, "cd", 2, 2) == 2);
  CHECK(fsync(fd) == 0 && lseek(0, 0, SEEK_END) == 4);
  CHECK(pread(strcmp(argv[2], "only writes") ? 0 : fd, found, 8, 0) == 4 && memcmp(found, "abcd", 4) == 0);
  return 0;
}

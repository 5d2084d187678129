/* Uses that the library cannot see demote the file: bytes, positions and flags stay right. */
#include "check.h"
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

static int start(const char *path, int flags) {
  unlink(path);
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | flags, 0600);
  CHECK(fd >= 0 && write(fd, "0123456789", 10) == 10 && lseek(fd, 4, SEEK_SET) == 4);
  return fd;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = argv[1];
  char buffer[16];

  /* mmap. */
  int fd = start(path, 0);
  int appending = open(path, O_WRONLY | O_APPEND);
  int writing = open(path, O_WRONLY);
  CHECK(appending >= 0 && mmap(NULL, 10, PROT_READ, MAP_SHARED, writing, 0) == MAP_FAILED && errno == EACCES);
  char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && memcmp(map, "0123456789", 10) == 0);
  map[5] = 'm';
  CHECK(read(fd, buffer, 3) == 3 && memcmp(buffer, "4m6", 3) == 0);
  CHECK(write(appending, "+", 1) == 1 && map[10] == '+' && lseek(fd, 0, SEEK_END) == 11);
  FAILS(read(writing, buffer, 1), EBADF);
  CHECK((fcntl(writing, F_GETFL) & O_ACCMODE) == O_WRONLY && (fcntl(appending, F_GETFL) & O_APPEND));
  /* Opening it again drops no locks. */
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  int again = open(path, O_RDWR);
  pid_t child = fork();
  if (child == 0) _exit(fcntl(again, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(pwrite(again, "a", 1, 0) == 1 && map[0] == 'a');
  close(again), close(writing), close(appending), close(fd);
  CHECK(munmap(map, 4096) == 0 && has(path, "a1234m6789+"));

  /* A queue of the kernel's: the file is demoted before the queue is examined. */
  fd = start(path, 0);
  uint32_t request[16] = {[5] = (uint32_t)fd}, *requests[] = {request};
  FAILS(syscall(SYS_io_submit, 0L, 1L, requests), EINVAL);
  CHECK(write(fd, "x", 1) == 1 && kernel_position(fd) == 5 && has(path, "0123x56789"));
  close(fd);

  /* The library carries out copies inside the kernel. */
  fd = start(path, 0);
  int plain = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(sendfile(plain, fd, NULL, 100) == 6 && lseek(fd, 0, SEEK_CUR) == 10);
  off_t from = 1;
  CHECK(sendfile(plain, fd, &from, 2) == 2 && from == 3 && has("copy", "45678912"));
  loff_t in = 6, out = 0;
  CHECK(copy_file_range(plain, &in, fd, &out, 2, 0) == 2 && in == 8 && out == 2 && has(path, "1223456789"));
  CHECK(lseek(fd, 0, SEEK_SET) == 0 && copy_file_range(fd, NULL, plain, NULL, 100, 0) == 10);
  FAILS(copy_file_range(fd, NULL, plain, NULL, 1, 7), EINVAL);
  CHECK(ioctl(plain, 0x40049409 /* FICLONE */, fd) == -1 && (errno == EOPNOTSUPP || errno == EINVAL));
  CHECK(has("copy", "456789121223456789"));
  close(plain), close(fd);

  /* A new file from a template. */
  char template[64];
  snprintf(template, sizeof template, "%s-XXXXXX", path);
  CHECK((fd = mkstemp(template)) >= 0 && write(fd, "temporary", 9) == 9);
  CHECK(strcmp(path, "atomic") != 0 || kernel_position(fd) == 0);
  close(fd);
  CHECK(has(template, "temporary"));
  unlink(template);
  unlink("copy");
  return 0;
}

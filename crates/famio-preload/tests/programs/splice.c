/* splice between a file and a pipe. */
#include "check.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = argv[1];
  static char data[200000], back[sizeof data];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 31 + i / 253);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && write(fd, data, sizeof data) == sizeof data && lseek(fd, 0, SEEK_SET) == 0);
  int ends[2];
  CHECK(pipe(ends) == 0);

  /* To a pipe, from the position and from an offset. */
  CHECK(splice(fd, NULL, ends[1], NULL, 3, 0) == 3 && lseek(fd, 0, SEEK_CUR) == 3);
  CHECK(read(ends[0], back, 16) == 3 && !memcmp(back, data, 3));
  loff_t at = 100;
  CHECK(splice(fd, &at, ends[1], NULL, 5, SPLICE_F_MOVE) == 5 && at == 105 && lseek(fd, 0, SEEK_CUR) == 3);
  CHECK(read(ends[0], back, 16) == 5 && !memcmp(back, data + 100, 5));
  at = sizeof data;
  CHECK(splice(fd, &at, ends[1], NULL, 5, 0) == 0);
  /* A full pipe. */
  size_t filled = 0;
  at = 0;
  for (ssize_t n; (n = splice(fd, &at, ends[1], NULL, sizeof data, SPLICE_F_NONBLOCK)) > 0;) filled += n;
  CHECK(errno == EAGAIN && filled >= 4096 && at == (loff_t)filled);
  for (size_t got = 0; got < filled;) {
    ssize_t n = read(ends[0], back + got, filled - got);
    CHECK(n > 0);
    got += n;
  }
  CHECK(!memcmp(back, data, filled));

  /* From a pipe. */
  FAILS(splice(ends[0], NULL, fd, NULL, 5, SPLICE_F_NONBLOCK), EAGAIN);
  CHECK(write(ends[1], "abcdef", 6) == 6 && lseek(fd, 10, SEEK_SET) == 10);
  CHECK(splice(ends[0], NULL, fd, NULL, 4, 0) == 4 && lseek(fd, 0, SEEK_CUR) == 14);
  at = sizeof data;
  CHECK(splice(ends[0], NULL, fd, &at, 100, 0) == 2 && at == (loff_t)sizeof data + 2);
  CHECK(pread(fd, back, 4, 10) == 4 && !memcmp(back, "abcd", 4));
  CHECK(pread(fd, back, 4, sizeof data) == 2 && !memcmp(back, "ef", 2));

  /* A program that moves a lot, with a child at the other end. */
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    for (size_t put = 0; put < sizeof data;) {
      ssize_t n = write(ends[1], data + put, sizeof data - put);
      if (n <= 0) _exit(1);
      put += n;
    }
    _exit(0);
  }
  close(ends[1]);
  at = 0;
  for (ssize_t n; (n = splice(ends[0], NULL, fd, &at, 1 << 20, 0)) > 0;) {}
  CHECK(at == sizeof data && pread(fd, back, sizeof back, 0) == sizeof back && !memcmp(back, data, sizeof data));
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);

  /* Errors. */
  CHECK(pipe(ends) == 0);
  at = 0;
  FAILS(splice(fd, NULL, ends[1], &at, 5, 0), ESPIPE);
  FAILS(splice(fd, NULL, ends[1], NULL, 5, 1u << 30), EINVAL);
  FAILS(splice(fd, NULL, ends[1], NULL, SIZE_MAX, 0), EINVAL);
  int same = open(path, O_RDWR), appending = open(path, O_WRONLY | O_APPEND), reading = open(path, O_RDONLY);
  FAILS(splice(fd, NULL, same, NULL, 5, 0), EINVAL);
  CHECK(write(ends[1], "x", 1) == 1);
  FAILS(splice(ends[0], NULL, appending, NULL, 1, 0), EINVAL);
  FAILS(splice(ends[0], NULL, reading, NULL, 1, 0), EBADF);
  FAILS(splice(appending, NULL, ends[1], NULL, 1, 0), EBADF);
  return 0;
}

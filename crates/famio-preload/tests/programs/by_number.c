/* Calls by syscall(2) do what their functions do (names: names.c). Usage: by_number FILE */
#include "check.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static union {
  char bytes[CMSG_SPACE(sizeof(int))];
  struct cmsghdr header;
} control;
static char byte = 'x';
static struct iovec part = {&byte, 1};

static struct msghdr message(void) {
  struct msghdr made = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  return made;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && pwrite(fd, "first", 5, 0) == 5 && fsync(fd) == 0 && pwrite(fd, "F", 1, 0) == 1);

  /* The other process sees the open epoch, and goes on at the same position. */
  int ends[2];
  CHECK(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, ends) == 0 && lseek(fd, 2, SEEK_SET) == 2);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char seen[8];
    CHECK(close(fd) == 0);
    struct msghdr got = message();
    CHECK(syscall(SYS_recvmsg, ends[1], &got, 0) == 1);
    int passed;
    memcpy(&passed, CMSG_DATA(&control.header), sizeof passed);
    CHECK(pread(passed, seen, sizeof seen, 0) == 5 && memcmp(seen, "First", 5) == 0);
    CHECK(read(passed, seen, sizeof seen) == 3 && memcmp(seen, "rst", 3) == 0);
    CHECK(close(passed) == 0);
    return 0;
  }
  struct msghdr sent = message();
  control.header.cmsg_len = CMSG_LEN(sizeof fd);
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  FAILS(syscall(SYS_sendmsg, ends[0], 8, 0), EFAULT);
  CHECK(syscall(SYS_sendmsg, ends[0], &sent, 0) == 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(lseek(fd, 0, SEEK_CUR) == 5);

  /* A time that is set stays, also when what was written before is committed. */
  struct timespec times[2] = {{1000, 0}, {2000, 0}};
  struct stat st;
  CHECK(pwrite(fd, "f", 1, 0) == 1);
  CHECK(syscall(SYS_utimensat, AT_FDCWD, argv[1], times, 0) == 0);
  CHECK(fsync(fd) == 0 && fstat(fd, &st) == 0 && st.st_mtime == 2000);
  times[1].tv_sec = 3000;
  CHECK(pwrite(fd, "F", 1, 0) == 1 && syscall(SYS_utimensat, fd, NULL, times, 0) == 0);
  CHECK(fsync(fd) == 0 && fstat(fd, &st) == 0 && st.st_mtime == 3000);

  CHECK(syscall(SYS_fchmod, fd, 0640) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0640);
  CHECK(syscall(SYS_fchmodat, AT_FDCWD, argv[1], 0600) == 0 && stat(argv[1], &st) == 0 && (st.st_mode & 0777) == 0600);
  CHECK(syscall(SYS_fchownat, AT_FDCWD, argv[1], -1, -1, 0) == 0 && syscall(SYS_fchown, fd, -1, -1) == 0);
  CHECK(syscall(SYS_setresuid, -1, -1, -1) == 0 && syscall(SYS_setresgid, -1, -1, -1) == 0);
  CHECK(pwrite(fd, "f", 1, 0) == 1);

  /* A number that was closed unseen, and is a pipe's now. */
  int again = dup(fd), pipes[2];
  CHECK(again >= 0 && inlined(SYS_close, again, 0, 0, 0) == 0);
  CHECK(syscall(SYS_pipe2, pipes, 0) == 0 && pipes[0] == again);
  CHECK(write(pipes[1], "pipe", 4) == 4);
  char seen[8];
  CHECK(read(pipes[0], seen, sizeof seen) == 4 && memcmp(seen, "pipe", 4) == 0);
  CHECK(close(fd) == 0 && has(argv[1], "first"));
  return 0;
}

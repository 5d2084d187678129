/* fork, vfork, clone, exec and the ways to exit. argv[2] is the way. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static int ended(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int in_child(int fd) {
  char buffer[4];
  /* Not CHECK: its abort would be the parent's. */
  if (pread(fd, buffer, 4, 0) != 4 || memcmp(buffer + 1, "are", 3) != 0) return 1;
  struct stat st;
  if (fstat(fd, &st) != 0 || stat("atomic", &st) != 0 || st.st_size < 6) return 3;
  /* It may open the file itself, too. */
  int own = open("atomic", O_RDWR);
  if (own < 0 || pread(own, buffer, 4, 0) != 4 || memcmp(buffer + 1, "are", 3) != 0 || close(own) != 0) return 6;
  if (close(fd) != 0) return 4;
  int ends[2];
  if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1) return 5;
  return 7;
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(fd >= 0 && write(fd, "parent", 6) == 6 && fsync(fd) == 0);

  pid_t child = fork();
  if (child == 0) _exit(in_child(fd));
  CHECK(ended(child) == 7);
  CHECK(write(fd, " goes on", 8) == 8 && has(argv[1], "parent goes on"));

  child = fork();
  if (child == 0) exit(in_child(fd));
  CHECK(ended(child) == 7);

  /* As glibc's _Fork and others do it. */
  child = (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
  if (child == 0) _exit(in_child(fd));
  CHECK(ended(child) == 7);
  CHECK(write(fd, "!", 1) == 1 && has(argv[1], "parent goes on!"));

  /* A vfork child changes nothing of the library's state. */
  child = vfork();
  if (child == 0) {
    close(fd);
    dup2(2, fd);
    execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
    _exit(1);
  }
  CHECK(ended(child) == 9 && pwrite(fd, "P", 1, 0) == 1 && has(argv[1], "Parent goes on!"));
  child = vfork();
  if (child == 0) _exit(3);
  CHECK(ended(child) == 3 && pwrite(fd, "Q", 1, 0) == 1);
  char *arguments[] = {"sh", "-c", "exit 5", NULL};
  CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0 && ended(child) == 5);
  CHECK(WEXITSTATUS(system("exit 6")) == 6);

  /* exec fails: the file can be used further. */
  FAILS(execl("/nowhere", "x", (char *)NULL), ENOENT);
  FAILS(execlp("famio-nowhere", "x", (char *)NULL), ENOENT);
  CHECK(pwrite(fd, "R", 1, 0) == 1 && pwrite(fd, "?", 1, 14) == 1);

  /* Another process may open it, too, and sees what is not committed. */
  CHECK(system("test $(head -c 6 atomic) = Rarent && printf + >> atomic") == 0);
  CHECK(lseek(fd, 0, SEEK_END) == 16 && ftruncate(fd, 15) == 0);

  if (argc < 3) return 0;
  if (!strcmp(argv[2], "exit")) exit(0);
  if (!strcmp(argv[2], "_exit")) _exit(0);
  if (!strcmp(argv[2], "quick_exit")) quick_exit(0);
  if (!strcmp(argv[2], "exit_group")) syscall(SYS_exit_group, 0);
  if (!strcmp(argv[2], "exec")) execlp("true", "true", (char *)NULL);
  if (!strcmp(argv[2], "execle")) execle("/bin/sh", "sh", "-c", "test $A = b", (char *)NULL, (char *[]){"A=b", NULL});
  if (!strcmp(argv[2], "pass")) {
    /* The next program writes where this one stopped. */
    CHECK(lseek(fd, 0, SEEK_END) == 15 && dup2(fd, 1) == 1);
    execlp("printf", "printf", " passed", (char *)NULL);
  }
  if (!strcmp(argv[2], "kill")) {
    CHECK(fsync(fd) == 0 && pwrite(fd, "lost", 4, 0) == 4);
    raise(SIGKILL);
  }
  return 99;
}

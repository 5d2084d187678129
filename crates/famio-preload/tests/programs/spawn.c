/* An atomic file as another program's standard output: by vfork, whose child shares the parent's memory, and by
 * posix_spawn. */
#include "check.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  int atomic = !strcmp(argv[1], "atomic");
  int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(fd >= 0 && write(fd, "one ", 4) == 4);

  /* A standard stream would bypass the library. */
  pid_t child = vfork();
  if (child == 0) {
    if (dup2(fd, 1) == -1) _exit(errno == EBUSY && dup2(fd, 2) == -1 && errno == EBUSY ? 3 : 4);
    execl("/bin/sh", "sh", "-c", "printf 'two '", (char *)NULL);
    _exit(5);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == (atomic ? 3 : 0));
  CHECK(write(fd, "three ", 6) == 6 && has(argv[1], atomic ? "one three " : "one two three "));

  /* A descriptor that takes its place is passed on. */
  int ends[2];
  CHECK(pipe(ends) == 0 && fcntl(fd, F_SETFD, 0) == 0);
  child = vfork();
  if (child == 0) {
    dup2(ends[1], fd);
    char script[64];
    snprintf(script, sizeof script, "printf passed >&%d", fd);
    execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    _exit(5);
  }
  char buffer[16];
  CHECK(close(ends[1]) == 0 && read(ends[0], buffer, 16) == 6 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);

  posix_spawn_file_actions_t actions;
  CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
  char *arguments[] = {"sh", "-c", "printf 'four '", NULL};
  CHECK(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ) == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0 && posix_spawn_file_actions_destroy(&actions) == 0);
  CHECK(write(fd, "five", 4) == 4 && has(argv[1], atomic ? "one three four five" : "one two three four five"));
  return 0;
}

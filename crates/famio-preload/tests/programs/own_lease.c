/* The program's own lease on an atomic file that a child shares: its break must come by the signal that the program
 * expects. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t seen;

static void note(int number) { seen = number; }

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
  CHECK(fd >= 0 && pwrite(fd, "1234", 4, 0) == 4 && fsync(fd) == 0);
  CHECK(signal(SIGIO, note) != SIG_ERR);
  CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
  CHECK(pwrite(fd, "5678", 4, 0) == 4 && fsync(fd) == 0);
  pid_t child = fork();
  if (child == 0) _exit(open(argv[1], O_RDONLY | O_NONBLOCK) < 0 && errno == EWOULDBLOCK ? 0 : 1);
  int status;
  while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(seen == SIGIO);
  CHECK(fcntl(fd, F_GETSIG) == 0);
  CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0 && close(fd) == 0);
  return 0;
}

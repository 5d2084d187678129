/* A program that has SIGIO blocked and takes it when it is ready for it. No thread of the library takes it instead. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGIO);
  sigprocmask(SIG_BLOCK, &set, NULL);
  int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0644);
  for (int i = 0; i < 200; i++) {
    if (write(fd, "abc", 3) != 3 || (i % 50 == 49 && fsync(fd) != 0)) {
      perror("write");
      return 1;
    }
    struct timespec moment = {0, 500000}, none = {0, 0};
    kill(getpid(), SIGIO);
    nanosleep(&moment, NULL); /* for others to take it */
    if (sigtimedwait(&set, NULL, &none) != SIGIO) {
      fprintf(stderr, "the signal is gone, in round %d\n", i);
      return 1;
    }
  }
  return close(fd) != 0;
}

/* An open that waits for the lease of another program, and is interrupted by a signal handler. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static void note(int number) { (void)number; }

int main(int argc, char **argv) {
  CHECK(argc == 2);
  struct sigaction action = {.sa_handler = note}; /* no SA_RESTART */
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  struct itimerval once = {.it_value = {.tv_usec = 500000}};
  CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
  CHECK(open(argv[1], O_RDWR | O_TRUNC) < 0 && errno == EINTR);
  return 0;
}

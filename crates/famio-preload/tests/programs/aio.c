/* POSIX aio: results, errors, lists and notifications. With a second argument: killed after an uncommitted write. */
#include "check.h"
#include <aio.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

static sem_t told;
static volatile sig_atomic_t signals, code, value, done;
static struct aiocb *watched;

static void on_signal(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  signals++, code = info->si_code, value = info->si_value.sival_int;
  done = watched ? aio_error(watched) : -1;
  sem_post(&told);
}

static void on_thread(union sigval with) {
  value = with.sival_int;
  sem_post(&told);
}

static void wait_told(void) {
  while (sem_wait(&told) < 0) CHECK(errno == EINTR);
}

static ssize_t end(struct aiocb *block) {
  const struct aiocb *list[] = {NULL, block};
  while (aio_error(block) == EINPROGRESS) aio_suspend(list, 2, NULL);
  return aio_return(block);
}

static struct aiocb make(int fd, int opcode, void *buffer, size_t count, off_t offset) {
  struct aiocb block = {.aio_fildes = fd, .aio_lio_opcode = opcode, .aio_buf = buffer, .aio_nbytes = count, .aio_offset = offset};
  block.aio_sigevent.sigev_notify = SIGEV_NONE;
  return block;
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  const char *path = argv[1];
  bool atomic = strcmp(path, "atomic") == 0;
  char buffer[32];
  CHECK(sem_init(&told, 0, 0) == 0);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

  struct aiocb one = make(fd, 0, "0123456789", 10, 0);
  CHECK(fd >= 0 && aio_write(&one) == 0 && end(&one) == 10 && aio_error(&one) == 0);
  CHECK(lseek(fd, 0, SEEK_CUR) == 0 && lseek(fd, 0, SEEK_END) == 10);
  /* The kernel's file does not have the size yet, or its position is unchanged: the library answered. */
  CHECK(!atomic || kernel_position(fd) == 0);
  one = make(fd, 0, NULL, 0, 0);
  CHECK(aio_fsync(O_SYNC, &one) == 0 && end(&one) == 0 && aio_fsync(O_DSYNC, &one) == 0 && end(&one) == 0);
  if (argc > 2) {
    one = make(fd, 0, "lost", 4, 0);
    CHECK(aio_write(&one) == 0 && end(&one) == 4);
    raise(SIGKILL);
  }
  FAILS(aio_fsync(12345, &one), EINVAL);
  struct aiocb64 wide = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = 4, .aio_offset = 8};
  wide.aio_sigevent.sigev_notify = SIGEV_NONE;
  CHECK(aio_read64(&wide) == 0);
  const struct aiocb64 *wides[] = {&wide};
  while (aio_error64(&wide) == EINPROGRESS) aio_suspend64(wides, 1, NULL);
  CHECK(aio_return64(&wide) == 2 && memcmp(buffer, "89", 2) == 0);

  /* Errors of the request are in the control block, errors of the call are returned. */
  int reading = open(path, O_RDONLY), appending = open(path, O_WRONLY | O_APPEND);
  one = make(reading, 0, "x", 1, 0);
  CHECK(aio_write(&one) == 0 && end(&one) == -1 && aio_error(&one) == EBADF);
  one = make(fd, 0, buffer, 1, -1);
  CHECK(aio_read(&one) == 0 && end(&one) == -1 && aio_error(&one) == EINVAL);
  one = make(fd, 0, (void *)8, 1, 0);
  CHECK(aio_read(&one) == 0 && end(&one) == -1 && aio_error(&one) == EFAULT);
  one = make(fd, 0, buffer, 1, 0);
  one.aio_reqprio = 21;
  FAILS(aio_read(&one), EINVAL);
  one = make(appending, 0, "ab", 2, 0);
  CHECK(aio_write(&one) == 0 && end(&one) == 2 && has(path, "0123456789ab"));
  CHECK(aio_cancel(fd, NULL) == AIO_ALLDONE);
  one = make(fd, 0, buffer, 1, 0);
  CHECK(aio_read(&one) == 0 && end(&one) == 1 && aio_cancel(fd, &one) == AIO_ALLDONE);

  /* Notifications. */
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
  struct aiocb told_of = make(fd, 0, "S", 1, 0);
  watched = &told_of;
  told_of.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
  told_of.aio_sigevent.sigev_signo = SIGRTMIN + 1;
  told_of.aio_sigevent.sigev_value.sival_int = 42;
  CHECK(aio_write(&told_of) == 0);
  wait_told();
  CHECK(signals == 1 && code == SI_ASYNCIO && value == 42 && done == 0 && end(&told_of) == 1);
  one = make(fd, 0, "T", 1, 1);
  one.aio_sigevent.sigev_notify = SIGEV_THREAD;
  one.aio_sigevent.sigev_notify_function = on_thread;
  one.aio_sigevent.sigev_value.sival_int = 43;
  CHECK(aio_write(&one) == 0);
  wait_told();
  CHECK(value == 43 && end(&one) == 1);

  /* Lists with both kinds of files. */
  int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
  struct aiocb a = make(fd, LIO_WRITE, "A", 1, 2), b = make(other, LIO_WRITE, "B", 1, 0), c = make(fd, LIO_NOP, "C", 1, 3);
  struct aiocb d = make(fd, LIO_READ, buffer, 3, 0);
  struct aiocb *list[] = {&a, &b, NULL, &c, &d};
  CHECK(lio_listio(LIO_WAIT, list, 5, NULL) == 0 && end(&a) == 1 && end(&b) == 1);
  CHECK(end(&d) == 3 && has(path, "STA3456789ab") && has("other", "B"));
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 44};
  watched = &a;
  a = make(fd, LIO_WRITE, "Z", 1, 2);
  CHECK(lio_listio(LIO_NOWAIT, list, 1, &event) == 0);
  wait_told();
  CHECK(signals == 2 && value == 44 && done == 0 && end(&a) == 1);
  a = make(fd, LIO_WRITE, "Y", 1, 2), b = make(other, LIO_WRITE, "Y", 1, 0);
  CHECK(lio_listio(LIO_NOWAIT, list, 2, &event) == 0);
  wait_told();
  CHECK(signals == 3 && end(&a) == 1 && end(&b) == 1 && has(path, "STY3456789ab") && has("other", "Y"));
  a = make(reading, LIO_WRITE, "x", 1, 0);
  FAILS(lio_listio(LIO_WAIT, list, 2, NULL), EIO);
  CHECK(aio_error(&a) == EBADF && end(&b) == 1);
  CHECK(lio_listio(LIO_NOWAIT, list, 1, NULL) == 0 && end(&a) == -1);
  a = make(fd, 77, "x", 1, 0);
  FAILS(lio_listio(LIO_WAIT, list, 1, NULL), EIO);
  CHECK(aio_error(&a) == EINVAL);
  FAILS(lio_listio(77, list, 1, NULL), EINVAL);
  CHECK(unlink("other") == 0 && close(other) == 0 && close(reading) == 0 && close(appending) == 0 && close(fd) == 0);
  return 0;
}

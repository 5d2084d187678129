/* src/shim.c with stubs behind it, for sanitizers that a preloaded library cannot have: what each function unpacks
 * from its variable arguments must be what was passed. Built and run by scripts/sanitize. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define MUST(condition)                                             \
  do {                                                              \
    if (!(condition)) {                                             \
      fprintf(stderr, "calls.c:%d: not: %s\n", __LINE__, #condition); \
      exit(1);                                                      \
    }                                                               \
  } while (0)

int famio_shim_fcntl(int fd, int command, ...);
int famio_shim_ioctl(int fd, unsigned long request, ...);
int famio_shim_vdprintf(int fd, const char *format, va_list list);
int famio_shim_dprintf(int fd, const char *format, ...);
int famio_shim___dprintf_chk(int fd, int flag, const char *format, ...);
int famio_shim_execl(const char *path, const char *first, ...);
int famio_shim_execlp(const char *file, const char *first, ...);
int famio_shim_execle(const char *path, const char *first, ...);

/* The stubs' arguments. */
static struct {
  const char *who;
  int fd, flags;
  unsigned long request, argument;
  char **argv, **envp;
} last;
static bool managed, interrupt_once;
/* The number of an internal descriptor. */
enum { INTERNAL = 1000 };
static int fail_after = -1;
static size_t step;
static char written[1 << 16];
static size_t length;

int famio_fcntl(int fd, int command, unsigned long argument) {
  last.who = "ours", last.fd = fd, last.flags = command, last.argument = argument;
  return 78;
}
int famio_ioctl(int fd, unsigned long request, unsigned long argument) {
  last.fd = fd, last.request = request, last.argument = argument;
  return 79;
}
bool famio_is_managed(int fd) {
  (void)fd;
  return managed;
}
int famio_whose(int fd) { return fd == INTERNAL ? 2 : managed; }
long famio_hook_close(long fd, long b, long c, long d, long e, long f) {
  (void)b, (void)c, (void)d, (void)e, (void)f;
  last.who = "close", last.fd = (int)fd;
  errno = EBADF;
  return -1;
}
long famio_raw_close(int fd) {
  (void)fd;
  return -EBADF;
}
long famio_raw_getrandom(void *buf, size_t count, unsigned flags) {
  (void)buf, (void)count, (void)flags;
  return -ENOSYS;
}
typedef int setcanceltype_function(int, int *);
setcanceltype_function *volatile famio_setcanceltype = pthread_setcanceltype;
setcanceltype_function *famio_find_setcanceltype(void) { return pthread_setcanceltype; }
int __real_pthread_join(pthread_t thread, void **result) {
  (void)thread, (void)result;
  return ESRCH;
}
/* Takes `step` bytes at a time; EINTR in between, or an error. */
ssize_t famio_hook_write(int fd, const void *buf, size_t count) {
  (void)fd;
  if (interrupt_once) {
    interrupt_once = false;
    errno = EINTR;
    return -1;
  }
  if (fail_after >= 0 && length >= (size_t)fail_after) {
    errno = ENOSPC;
    return -1;
  }
  if (count > step) count = step;
  MUST(length + count <= sizeof written);
  memcpy(written + length, buf, count);
  length += count;
  return (ssize_t)count;
}
static void keep(const char *who, char **argv, char **envp) {
  /* The array is on the shim's stack, so it is checked before the call returns. */
  last.who = who, last.argv = argv, last.envp = envp;
}
static int expected_count;
static int look(const char *who, char **argv, char **envp) {
  keep(who, argv, envp);
  for (int i = 0; i < expected_count; i++) {
    char text[16];
    snprintf(text, sizeof text, "a%d", i);
    MUST(argv[i] && strcmp(argv[i], text) == 0);
  }
  MUST(argv[expected_count] == NULL);
  return 80;
}
int famio_execv(const char *path, char **argv) { return look(path, argv, NULL); }
int famio_execvp(const char *file, char **argv) { return look(file, argv, NULL); }
int famio_execve(const char *path, char **argv, char **envp) { return look(path, argv, envp); }

static int libcs_fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  last.who = "libc", last.fd = fd, last.argument = va_arg(list, unsigned long);
  va_end(list);
  return 81;
}
typedef int fcntl_function(int, int, ...);
typedef int vdprintf_function(int, const char *, va_list);
static bool without_libc;
fcntl_function *famio_next_fcntl(void) { return without_libc ? NULL : libcs_fcntl; }
static int libcs_vdprintf(int fd, const char *format, va_list list) {
  (void)fd;
  last.who = "libc";
  return vsnprintf(written, sizeof written, format, list);
}
vdprintf_function *famio_next_vdprintf(void) { return without_libc ? NULL : libcs_vdprintf; }

typedef long call_function(long, long, long, long, long, long);
long famio_without_cancel(call_function *next, call_function *call, long a, long b, long c, long d, long e, long f);
static long ours(long a, long b, long c, long d, long e, long f) {
  (void)b, (void)c, (void)d, (void)e, (void)f;
  last.who = "ours", last.fd = (int)a;
  return 83;
}
static long libcs(long a, long b, long c, long d, long e, long f) {
  (void)b, (void)c, (void)d, (void)e, (void)f;
  last.who = "libc", last.fd = (int)a;
  return 84;
}

/* In a thread that may be cancelled at any instruction. */
static void cancelled_at_once(void) {
  managed = false;
  MUST(famio_without_cancel(libcs, ours, 3, 0, 0, 0, 0, 0) == 84);
  MUST(famio_without_cancel(NULL, ours, 3, 0, 0, 0, 0, 0) == 83);
  managed = true;
  MUST(famio_without_cancel(libcs, ours, 3, 0, 0, 0, 0, 0) == 83);
  managed = false, last.who = "nobody", errno = 0;
  MUST(famio_without_cancel(libcs, ours, INTERNAL, 0, 0, 0, 0, 0) == -1 && errno == EBADF);
  MUST(strcmp(last.who, "nobody") == 0);
  MUST(famio_without_cancel(libcs, famio_hook_close, INTERNAL, 0, 0, 0, 0, 0) == -1 && strcmp(last.who, "close") == 0);
}

static int va(int fd, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int done = famio_shim_vdprintf(fd, format, list);
  va_end(list);
  return done;
}

static void controls(void) {
  errno = 0;
  MUST(famio_shim_dprintf(INTERNAL, "text %d", 1) == -1 && errno == EBADF);
  struct flock lock = {0};
  MUST(famio_shim_fcntl(3, F_SETFL, O_APPEND) == 78 && last.argument == O_APPEND);
  managed = false;
  MUST(famio_shim_fcntl(3, F_SETLKW, &lock) == 81 && last.argument == (unsigned long)&lock);
  managed = true;
  MUST(famio_shim_fcntl(3, F_SETLKW, &lock) == 78 && last.argument == (unsigned long)&lock);
  managed = false, without_libc = true;
  MUST(famio_shim_fcntl(3, F_OFD_SETLKW, &lock) == 78);
  without_libc = false;
  MUST(famio_shim_ioctl(4, 0xFFFFFFFFFFFFUL, &lock) == 79 && last.request == 0xFFFFFFFFFFFFUL);
}

static void prints(void) {
  static char wide[30000];
  memset(wide, 'w', sizeof wide - 1);
  managed = false;
  MUST(famio_shim_dprintf(3, "%d", 5) == 1 && strcmp(last.who, "libc") == 0);
  managed = true;
  for (step = 1; step < 40000; step = step * 7 + 3) {
    length = 0, interrupt_once = true;
    MUST(famio_shim_dprintf(3, "%d %s %.2f %ld|", 7, wide, 1.5, -1L) == 2 + 29999 + 9);
    MUST(length == 30010 && memcmp(written, "7 www", 5) == 0 && memcmp(written + 30001, " 1.50 -1|", 9) == 0);
  }
  length = 0;
  MUST(va(3, "%s-%s", "a", "b") == 3 && length == 3);
  MUST(famio_shim___dprintf_chk(3, 1, "%c", 'x') == 1 && length == 4);
  MUST(famio_shim_dprintf(3, "%s", "") == 0);
  length = 0, step = 10, fail_after = 20;
  MUST(famio_shim_dprintf(3, "%s", wide) == -1 && errno == ENOSPC && length == 20);
  fail_after = -1;
}

static void execs(void) {
  char *environment[] = {"E=1", NULL};
  expected_count = 0;
  MUST(famio_shim_execl("p", NULL) == 80);
  MUST(famio_shim_execle("p", NULL, environment) == 80 && last.envp == environment);
  expected_count = 1;
  MUST(famio_shim_execl("p", "a0", NULL) == 80);
  MUST(famio_shim_execlp("f", "a0", NULL) == 80 && strcmp(last.who, "f") == 0);
  MUST(famio_shim_execle("p", "a0", NULL, environment) == 80 && last.envp == environment);
  expected_count = 12;
  MUST(famio_shim_execl("p", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10", "a11", NULL) == 80);
  MUST(famio_shim_execle("p", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10", "a11", NULL,
                         environment) == 80 && last.envp == environment);
}

int main(void) {
  controls();
  cancelled_at_once();
  prints();
  execs();
  puts("calls.c: passed");
}

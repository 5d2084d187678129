/* Variadic functions, which Rust cannot define. Each unpacks its arguments and passes them on. (`open`, whose
 * additional argument is an integer, is in entry.rs.) */
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

/* Called directly, not through the procedure linkage table. */
#pragma GCC visibility push(hidden)
extern int famio_fcntl(int fd, int command, unsigned long argument);
extern int famio_ioctl(int fd, unsigned long request, unsigned long argument);
extern bool famio_is_managed(int fd);
extern int famio_whose(int fd);
extern long famio_raw_close(int fd);
extern long famio_raw_getrandom(void *buf, size_t count, unsigned flags);
extern ssize_t famio_hook_write(int fd, const void *buf, size_t count);
extern int famio_execv(const char *path, char **argv);
extern int famio_execvp(const char *file, char **argv);
extern int famio_execve(const char *path, char **argv, char **envp);

/* libc's own function, looked up when first needed; null if there is none. */
typedef int fcntl_function(int, int, ...);
typedef int vdprintf_function(int, const char *, va_list);
extern fcntl_function *famio_next_fcntl(void);
extern vdprintf_function *famio_next_vdprintf(void);
typedef int setcanceltype_function(int, int *);
extern setcanceltype_function *volatile famio_setcanceltype; /* null before the constructor */
extern setcanceltype_function *famio_find_setcanceltype(void);
typedef long call_function(long, long, long, long, long, long);
extern call_function famio_hook_close;

/* Functions that Rust's standard library calls on our behalf: when a descriptor is dropped, a hash table gets its
 * seed, or a thread is joined. libc's functions are cancellation points, and Rust code cannot be unwound that way. */
static long outcome(long result) {
  if (result >= 0) return result;
  errno = (int)-result;
  return -1;
}

__attribute__((visibility("hidden"))) int __wrap_close(int fd) { return (int)outcome(famio_raw_close(fd)); }

__attribute__((visibility("hidden"))) ssize_t __wrap_getrandom(void *buf, size_t count, unsigned flags) {
  return outcome(famio_raw_getrandom(buf, count, flags));
}

extern int __real_pthread_join(pthread_t thread, void **result);
__attribute__((visibility("hidden"))) int __wrap_pthread_join(pthread_t thread, void **result) {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  int joined = __real_pthread_join(thread, result);
  pthread_setcancelstate(before, NULL);
  return joined;
}

/* This thread may be cancelled at any instruction. Calls of this library must not be: Rust functions cannot be
 * unwound that way. */
__thread int famio_cancels_at_once __attribute__((tls_model("initial-exec")));
long famio_without_cancel(call_function *next, call_function *call, long a, long b, long c, long d, long e, long f);
#pragma GCC visibility pop

static setcanceltype_function *setcanceltype(void) {
  setcanceltype_function *found = famio_setcanceltype;
  return found ? found : famio_find_setcanceltype();
}

/* By the type and not by the state: if glibc 2.36 finds a cancellation when it enables the state, pthread_join does
 * not return PTHREAD_CANCELED. */
long famio_without_cancel(call_function *next, call_function *call, long a, long b, long c, long d, long e, long f) {
  setcanceltype_function *set = setcanceltype();
  int before;
  set(PTHREAD_CANCEL_DEFERRED, &before);
  int whose = famio_whose((int)a);
  bool ours = !next || whose;
  long result = 0;
  if (whose == 2 && call != famio_hook_close) {
    errno = EBADF; /* internal */
    result = -1;
  } else if (ours) {
    result = call(a, b, c, d, e, f);
  }
  int error = errno;
  set(before, NULL); /* a cancellation that came meanwhile takes effect here */
  errno = error;
  return ours ? result : next(a, b, c, d, e, f);
}

int famio_shim_pthread_setcanceltype(int type, int *old) {
  setcanceltype_function *set = setcanceltype();
  if (!set) return ENOSYS;
  if (type == PTHREAD_CANCEL_ASYNCHRONOUS) famio_cancels_at_once = 1; /* before it can matter */
  int result = set(type, old);
  if (result == 0 && type == PTHREAD_CANCEL_DEFERRED) famio_cancels_at_once = 0;
  return result;
}

/* Waiting for a lock is a cancellation point: libc's function waits, on any descriptor, since the kernel has the
 * locks. */
int famio_shim_fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  unsigned long argument = va_arg(list, unsigned long);
  va_end(list);
  if (command == F_SETLKW || command == F_OFD_SETLKW) {
    fcntl_function *next = famio_next_fcntl();
    if (next && !famio_is_managed(fd)) return next(fd, command, argument);
  }
  if (__builtin_expect(famio_cancels_at_once, 0))
    return (int)famio_without_cancel(NULL, (call_function *)(void *)famio_fcntl, fd, command, (long)argument, 0, 0, 0);
  return famio_fcntl(fd, command, argument);
}

int famio_shim_ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  unsigned long argument = va_arg(list, unsigned long);
  va_end(list);
  return famio_ioctl(fd, request, argument);
}

static int print(int fd, const char *format, va_list list) {
  int whose = famio_whose(fd);
  if (whose == 2) {
    errno = EBADF; /* internal */
    return -1;
  }
  if (!whose) {
    vdprintf_function *next = famio_next_vdprintf();
    if (next) return next(fd, format, list);
  }
  char *text;
  int length = vasprintf(&text, format, list);
  if (length < 0) return length;
  int done = 0;
  while (done < length) {
    ssize_t n = famio_hook_write(fd, text + done, (size_t)(length - done));
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      done = -1;
      break;
    }
    done += (int)n;
  }
  int saved = errno;
  free(text);
  errno = saved;
  return done;
}

int famio_shim_vdprintf(int fd, const char *format, va_list list) { return print(fd, format, list); }

int famio_shim_dprintf(int fd, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int done = print(fd, format, list);
  va_end(list);
  return done;
}

/* The flag makes libc check for %n in writable memory; the formatted text stays the same. */
int famio_shim___vdprintf_chk(int fd, int flag, const char *format, va_list list) {
  (void)flag;
  return print(fd, format, list);
}

int famio_shim___dprintf_chk(int fd, int flag, const char *format, ...) {
  (void)flag;
  va_list list;
  va_start(list, format);
  int done = print(fd, format, list);
  va_end(list);
  return done;
}

/* Counts and copies the variable arguments into an array on the stack of the caller of COLLECT. */
#define COLLECT(first)                                              \
  va_list list;                                                     \
  va_start(list, first);                                            \
  size_t count = 1;                                                 \
  for (const char *a = first; a; a = va_arg(list, char *)) count++; \
  va_end(list);                                                     \
  char **argv = alloca(count * sizeof *argv);                       \
  va_start(list, first);                                            \
  argv[0] = (char *)first;                                          \
  for (size_t i = 1; i < count; i++) argv[i] = va_arg(list, char *);

int famio_shim_execl(const char *path, const char *first, ...) {
  COLLECT(first)
  va_end(list);
  return famio_execv(path, argv);
}

int famio_shim_execlp(const char *file, const char *first, ...) {
  COLLECT(first)
  va_end(list);
  return famio_execvp(file, argv);
}

int famio_shim_execle(const char *path, const char *first, ...) {
  COLLECT(first)
  char **envp = va_arg(list, char **);
  va_end(list);
  return famio_execve(path, argv, envp);
}

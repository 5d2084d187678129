/* Functions with a variable number of arguments, which Rust cannot define. Each unpacks and calls on. (`open`, whose one argument more is
 * an integer, is in entry.rs.) */
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

/* Called directly, not by the procedure linkage table. */
#pragma GCC visibility push(hidden)
extern int famio_fcntl(int fd, int command, unsigned long argument);
extern int famio_ioctl(int fd, unsigned long request, unsigned long argument);
extern bool famio_is_managed(int fd);
extern ssize_t famio_hook_write(int fd, const void *buf, size_t count);
extern int famio_execv(const char *path, char **argv);
extern int famio_execvp(const char *file, char **argv);
extern int famio_execve(const char *path, char **argv, char **envp);

/* libc's own, looked up when first needed; null if there is none. */
typedef int fcntl_function(int, int, ...);
typedef int vdprintf_function(int, const char *, va_list);
extern fcntl_function *famio_next_fcntl(void);
extern vdprintf_function *famio_next_vdprintf(void);
#pragma GCC visibility pop

/* Waiting for a lock is a cancellation point: libc's function waits, on any descriptor, since locks are the kernel's. */
int famio_shim_fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  unsigned long argument = va_arg(list, unsigned long);
  va_end(list);
  if (command == F_SETLKW || command == F_OFD_SETLKW) {
    fcntl_function *next = famio_next_fcntl();
    if (next && !famio_is_managed(fd)) return next(fd, command, argument);
  }
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
  if (!famio_is_managed(fd)) {
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

/* The flag asks libc to look for %n in writable memory; what is formatted stays the same. */
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

/* Counts and copies the list's arguments into an array on the stack of the caller of COLLECT. */
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

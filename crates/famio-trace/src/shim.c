/* Arguments that are not words in registers. */
#include <stdarg.h>

/* The wrappers of libc's functions. A va_list is passed as a word. */
extern int famio_wrap_vdprintf(int fd, const char *format, va_list list);
extern int famio_wrap___vdprintf_chk(int fd, int flag, const char *format, va_list list);

int famio_wrap_dprintf(int fd, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int done = famio_wrap_vdprintf(fd, format, list);
  va_end(list);
  return done;
}

int famio_wrap___dprintf_chk(int fd, int flag, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int done = famio_wrap___vdprintf_chk(fd, flag, format, list);
  va_end(list);
  return done;
}

/* A traced function: calls libc's own, with a look before and after. All arguments of these functions are words in
 * registers. */
#include <stdbool.h>

typedef long function(long, long, long, long, long, long);
struct look {
  unsigned long word[8];
};
extern function *famio_trace_next(const char *name);
extern long famio_trace_missing(void);
extern bool famio_trace_on(void);
extern void famio_trace_before(unsigned kind, const long *arguments, struct look *look);
extern void famio_trace_after(unsigned kind, const long *arguments, long result, const struct look *look);

/* libc's function is looked up by the same name: so the checked forms check, and those of old programs work as
 * before. */
#define WRAP(name, kind)                                                    \
  long famio_wrap_##name(long a, long b, long c, long d, long e, long f) {  \
    static function *volatile known;                                        \
    function *next = known;                                                 \
    if (!next) {                                                            \
      next = famio_trace_next(#name);                                       \
      if (!next) return famio_trace_missing();                              \
      known = next;                                                         \
    }                                                                       \
    if (!famio_trace_on()) return next(a, b, c, d, e, f);                   \
    const long arguments[6] = {a, b, c, d, e, f};                           \
    struct look look;                                                       \
    famio_trace_before(kind, arguments, &look);                             \
    long result = next(a, b, c, d, e, f);                                   \
    famio_trace_after(kind, arguments, result, &look);                      \
    return result;                                                          \
  }

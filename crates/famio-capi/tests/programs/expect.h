/* What a test program expects of calls of libfamio: a line for each that does otherwise, and `failed` at the end. */
#ifndef EXPECT_H
#define EXPECT_H

#include <famio.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failed;
/* An address without memory. */
static void *const bad = (void *)8;

/* `call` must return -1, or null, with that errno and a message. */
#define FAILS(call, error)                                                                                            \
  do {                                                                                                                \
    errno = 0;                                                                                                        \
    long result_ = (long)(intptr_t)(call);                                                                            \
    int errno_ = errno;                                                                                               \
    if ((result_ != -1 && result_ != 0) || errno_ != (error) || !*nverrmsg()) {                                       \
      printf("line %d: %s: %ld, %s instead of %s (%s)\n", __LINE__, #call, result_, strerror(errno_),                 \
             strerror(error), nverrmsg());                                                                            \
      failed = 1;                                                                                                     \
    }                                                                                                                 \
  } while (0)

#define CHECK(what)                                                                                                   \
  do {                                                                                                                \
    if (!(what)) {                                                                                                    \
      printf("line %d: not %s: %s, %s\n", __LINE__, #what, strerror(errno), nverrmsg());                              \
      failed = 1;                                                                                                     \
    }                                                                                                                 \
  } while (0)

#endif

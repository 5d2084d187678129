/* The library cannot start: prints the reason. */
#define _GNU_SOURCE
#include <famio.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  int wanted = getenv("WANTED") ? ENOSYS : EINVAL;
  if (nvopen("file", O_RDWR | O_CREAT, 0644) != -1 || errno != wanted) return 1;
  puts(nverrmsg());
  return 0;
}

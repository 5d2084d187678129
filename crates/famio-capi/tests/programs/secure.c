/* Opens a file, and prints the result: a program with extra privileges accepts no settings from its caller. */
#define _GNU_SOURCE
#include <famio.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  printf("user %d for %d: ", (int)geteuid(), (int)getuid());
  int file = nvopen("file", O_RDWR | O_CREAT, 0600);
  if (file == -1) {
    printf("%s\n", nverrmsg());
    return 0;
  }
  if (nvwrite(file, "x", 1) != 1 || nvfsync(file) != 0 || nvclose(file) != 0) {
    printf("%s\n", nverrmsg());
    return 1;
  }
  puts("written");
  return 0;
}

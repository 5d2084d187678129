/* The library's use of memory, for valgrind: every call once, with valid memory only. */
#define _GNU_SOURCE
#include <famio.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define CHECK(what)                                                                                                   \
  do {                                                                                                                \
    if (!(what)) return printf("line %d: %s: %s\n", __LINE__, #what, nverrmsg());                                     \
  } while (0)

int main(void) {
  char bytes[100], back[100];
  memset(bytes, 'b', sizeof bytes);
  struct iovec both[2] = {{bytes, 40}, {bytes + 40, 60}}, into[2] = {{back, 40}, {back + 40, 60}};
  for (int round = 0; round < 3; round++) {
    int fd = nvopen("file", O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0);
    CHECK(!nvftruncate(fd, 8 * PAGE));
    CHECK(nvwrite(fd, bytes, 100) == 100 && nvlseek(fd, 0, SEEK_SET) == 0 && nvread(fd, back, 100) == 100);
    CHECK(nvpwrite(fd, bytes, 100, PAGE - 50) == 100 && nvpread(fd, back, 100, PAGE - 50) == 100);
    CHECK(nvpwritev(fd, both, 2, 5000) == 100 && nvpreadv(fd, into, 2, 5000) == 100);
    CHECK(nvlseek(fd, 9000, SEEK_SET) == 9000 && nvwritev(fd, both, 2) == 100);
    CHECK(nvlseek(fd, 9000, SEEK_SET) == 9000 && nvreadv(fd, into, 2) == 100 && !memcmp(bytes, back, 100));
    char *map = nvmmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    CHECK(nvmemcpy(map + 100, bytes, 100) && nvmemmove(map + 150, map + 100, 100) && nvmemset(map, round, 70));
    CHECK(nvstrcpy(map + 3 * PAGE - 3, "over the end of a page"));
    map[4 * PAGE] = 's';
    CHECK(!nvmsync(map, 8 * PAGE, MS_SYNC) && !nvadvise(map, 8 * PAGE, NVADV_WILLNEED));
    CHECK(nvpread(fd, back, 50, 150) == 50 && !memcmp(back, bytes, 50));
    map = nvmremap(map, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
    CHECK(map != MAP_FAILED && map[4 * PAGE] == 's');
    struct nvcounters counters;
    struct stat stat;
    CHECK(!nvcounters(fd, &counters, sizeof counters) && counters.committed > 0 && counters.mapped == 16 * PAGE);
    CHECK(!nvfstat(fd, &stat) && stat.st_size == 8 * PAGE);
    CHECK(nvmemcpy(map + 200, bytes, 100) && !nvfsync(fd) && !nvfdatasync(fd));
    CHECK(!nvmunmap(map, 16 * PAGE) && !nvclose(fd));
    CHECK(nvrecover("file", 0) == 0 && nvstrerror(1));
  }
  return 0;
}

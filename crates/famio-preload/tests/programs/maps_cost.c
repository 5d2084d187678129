/* A file that is mapped and grows, as Kyoto Cabinet's: what its calls cost is counted outside. An access to a path that
 * is not there says what begins. */
#include "check.h"
#include <sys/mman.h>

enum { SIZE = 8 << 20, WINDOW = 64 << 20, RECORD = 1000 };

int main(int argc, char **argv) {
  static char record[RECORD], there[RECORD];
  int fd = open(argv[argc - 1], O_RDWR);
  CHECK(fd >= 0);
  char *map = mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED);
  off_t end = SIZE;
  memset(record, 'a', RECORD);
  for (int i = 0; i < 4; i++) {
    CHECK(pwrite(fd, record, RECORD, i) == RECORD);
    map[5000] = i;
    CHECK(msync(map, SIZE, MS_SYNC) == 0 && fsync(fd) == 0);
  }
  access("/cost-write", F_OK);
  for (int i = 0; i < 100; i++)
    CHECK(pwrite(fd, record, RECORD, i * 7 * RECORD) == RECORD);
  access("/cost-read", F_OK);
  for (int i = 0; i < 100; i++)
    CHECK(pread(fd, there, RECORD, i * 7 * RECORD) == RECORD && memcmp(there, record, RECORD) == 0);
  access("/cost-append", F_OK);
  for (int i = 0; i < 100; i++, end += RECORD)
    CHECK(pwrite(fd, record, RECORD, end) == RECORD && map[end + RECORD - 1] == 'a');
  access("/cost-grow", F_OK);
  for (int i = 0; i < 100; i++, end += RECORD) {
    CHECK(ftruncate(fd, 2 * end) == 0);
    CHECK(map[end] == 0 && map[2 * end - 1] == 0);
    memcpy(map + end, record, RECORD);
    CHECK(ftruncate(fd, end + RECORD) == 0);
  }
  access("/cost-sync", F_OK);
  for (int i = 0; i < 100; i++) {
    map[i * 50000] = 'b';
    CHECK(msync(map, SIZE, MS_SYNC) == 0);
  }
  access("/cost-end", F_OK);
  CHECK(pread(fd, there, RECORD, end - RECORD) == RECORD && memcmp(there, record, RECORD) == 0);
  CHECK(lseek(fd, 0, SEEK_END) == end);
  return 0;
}

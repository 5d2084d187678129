/* A persistent hash map of strings in a region of libfamio: chained, growing with its contents. It has no log and no order of
 * stores: after a crash, everything between two nvmsync()s is there as a whole, or not at all.
 *
 *   cc hashmap.c $(pkg-config --cflags --libs famio) -o hashmap
 *   ./hashmap FILE put KEY VALUE | get KEY | del KEY | list | check | rounds N
 *
 * Small changes are plain stores; longer ones go by nvmemcpy(), which the next SYNC need not search for. */
#define _GNU_SOURCE
#include <famio.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x70616d68736168ull
#define FIRST_SIZE (64 * 1024ull)
#define FIRST_BUCKETS 64u

/* The beginning of the file. Places are offsets, so the file may be mapped anywhere. Zero is no place. */
struct header {
  uint64_t magic;
  uint64_t size;    /* of the file */
  uint64_t end;     /* nothing was ever allocated from here on */
  uint64_t free[4]; /* freed pieces, by size: 64, 256, 1024, 4096 bytes */
  uint64_t buckets; /* where they are */
  uint64_t mask;    /* number of buckets, less one */
  uint64_t entries;
};

struct entry {
  uint64_t next;
  uint64_t hash;
  uint32_t key_len, value_len;
  char bytes[]; /* the key, then the value */
};

struct map {
  int fd;
  char *base;
  uint64_t size;
};

static void fail(const char *what) {
  fprintf(stderr, "hashmap: %s: %s\n", what, nverrmsg());
  exit(1);
}

static struct header *header(struct map *map) { return (struct header *)map->base; }
static void *at(struct map *map, uint64_t place) { return map->base + place; }
static struct entry *entry_at(struct map *map, uint64_t place) { return place ? at(map, place) : NULL; }

/* Extends file and region. Pointers into the region become invalid. */
static void grow(struct map *map, uint64_t least) {
  uint64_t size = map->size;
  while (size < least) size *= 2;
  if (nvftruncate(map->fd, (off_t)size)) fail("nvftruncate");
  void *base = nvmremap(map->base, map->size, size, MREMAP_MAYMOVE);
  if (base == MAP_FAILED) fail("nvmremap");
  map->base = base;
  map->size = header(map)->size = size;
}

static int class_of(uint64_t bytes) {
  for (int class = 0; class < 4; class++)
    if (bytes <= 64ull << (2 * class)) return class;
  return -1;
}

/* Allocates a place for `bytes` bytes. */
static uint64_t give(struct map *map, uint64_t bytes) {
  int class = class_of(bytes);
  if (class >= 0) {
    bytes = 64ull << (2 * class);
    uint64_t place = header(map)->free[class];
    if (place) {
      header(map)->free[class] = *(uint64_t *)at(map, place);
      return place;
    }
  }
  bytes = (bytes + 63) & ~63ull;
  uint64_t place = header(map)->end;
  if (place + bytes > map->size) grow(map, place + bytes);
  header(map)->end = place + bytes;
  return place;
}

/* Larger pieces (old tables) are not reused: together they are smaller than the table. */
static void take_back(struct map *map, uint64_t place, uint64_t bytes) {
  int class = class_of(bytes);
  if (class < 0) return;
  *(uint64_t *)at(map, place) = header(map)->free[class];
  header(map)->free[class] = place;
}

static uint64_t hash_of(const char *key, size_t len) {
  uint64_t hash = 1469598103934665603ull;
  for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)key[i]) * 1099511628211ull;
  return hash;
}

static void map_open(struct map *map, const char *path) {
  map->fd = nvopen(path, O_RDWR | O_CREAT, 0644);
  if (map->fd < 0) fail(path);
  struct stat stat;
  if (nvfstat(map->fd, &stat)) fail("nvfstat");
  map->size = (uint64_t)stat.st_size;
  int is_new = map->size == 0;
  if (is_new && nvftruncate(map->fd, (off_t)(map->size = FIRST_SIZE))) fail("nvftruncate");
  map->base = nvmmap(NULL, map->size, PROT_READ | PROT_WRITE, MAP_SHARED, map->fd, 0);
  if (map->base == MAP_FAILED) fail("nvmmap");
  if (is_new) {
    struct header first = {.magic = MAGIC, .size = map->size, .mask = FIRST_BUCKETS - 1};
    first.buckets = (sizeof first + 63) & ~63ull;
    first.end = first.buckets + FIRST_BUCKETS * sizeof(uint64_t);
    if (!nvmemcpy(map->base, &first, sizeof first)) fail("nvmemcpy");
  } else if (map->size < FIRST_SIZE || header(map)->magic != MAGIC || header(map)->size != map->size) {
    fprintf(stderr, "hashmap: %s: not a hash map\n", path);
    exit(1);
  }
}

/* Makes everything since the last call durable, as a whole. */
static void map_sync(struct map *map) {
  if (nvmsync(map->base, map->size, MS_SYNC)) fail("nvmsync");
}

static void map_close(struct map *map) {
  map_sync(map);
  if (nvmunmap(map->base, map->size) || nvclose(map->fd)) fail("nvclose");
}

/* Where the place of the entry with this key is stored: in its bucket, or in the previous entry. */
static uint64_t find(struct map *map, const char *key, size_t len, uint64_t hash) {
  uint64_t link = header(map)->buckets + (hash & header(map)->mask) * sizeof(uint64_t);
  for (;;) {
    struct entry *entry = entry_at(map, *(uint64_t *)at(map, link));
    if (!entry || (entry->hash == hash && entry->key_len == len && !memcmp(entry->bytes, key, len))) return link;
    link = (uint64_t)((char *)&entry->next - map->base);
  }
}

static uint64_t entry_size(const struct entry *entry) { return sizeof *entry + entry->key_len + entry->value_len; }

static int map_del(struct map *map, const char *key) {
  size_t len = strlen(key);
  uint64_t link = find(map, key, len, hash_of(key, len));
  uint64_t place = *(uint64_t *)at(map, link);
  if (!place) return 0;
  struct entry *entry = at(map, place);
  *(uint64_t *)at(map, link) = entry->next;
  take_back(map, place, entry_size(entry));
  header(map)->entries--;
  return 1;
}

/* A table of twice the size, with the same entries. */
static void widen(struct map *map) {
  uint64_t mask = header(map)->mask * 2 + 1;
  uint64_t table = give(map, (mask + 1) * sizeof(uint64_t));
  if (!nvmemset(at(map, table), 0, (mask + 1) * sizeof(uint64_t))) fail("nvmemset");
  uint64_t *new = at(map, table), *old = at(map, header(map)->buckets);
  for (uint64_t i = 0; i <= header(map)->mask; i++) {
    for (uint64_t place = old[i]; place;) {
      struct entry *entry = at(map, place);
      uint64_t next = entry->next;
      entry->next = new[entry->hash & mask];
      new[entry->hash & mask] = place;
      place = next;
    }
  }
  take_back(map, header(map)->buckets, (header(map)->mask + 1) * sizeof(uint64_t));
  header(map)->buckets = table;
  header(map)->mask = mask;
}

static void map_put(struct map *map, const char *key, const void *value, size_t value_len) {
  size_t key_len = strlen(key);
  uint64_t hash = hash_of(key, key_len);
  map_del(map, key);
  if (header(map)->entries > header(map)->mask) widen(map);
  struct entry head = {.hash = hash, .key_len = (uint32_t)key_len, .value_len = (uint32_t)value_len};
  uint64_t place = give(map, entry_size(&head));
  uint64_t *bucket = (uint64_t *)at(map, header(map)->buckets) + (hash & header(map)->mask);
  head.next = *bucket;
  struct entry *entry = at(map, place);
  if (!nvmemcpy(entry, &head, sizeof head) || !nvmemcpy(entry->bytes, key, key_len) ||
      !nvmemcpy(entry->bytes + key_len, value, value_len))
    fail("nvmemcpy");
  *bucket = place;
  header(map)->entries++;
}

static const struct entry *map_get(struct map *map, const char *key) {
  size_t len = strlen(key);
  return entry_at(map, *(uint64_t *)at(map, find(map, key, len, hash_of(key, len))));
}

/* Checks that every entry is where it should be; returns how many there are. */
static uint64_t map_check(struct map *map, int print) {
  uint64_t seen = 0;
  const uint64_t *buckets = at(map, header(map)->buckets);
  for (uint64_t i = 0; i <= header(map)->mask; i++) {
    for (uint64_t place = buckets[i]; place; seen++) {
      const struct entry *entry = at(map, place);
      if (place + sizeof *entry > header(map)->end || place + entry_size(entry) > header(map)->end ||
          (entry->hash & header(map)->mask) != i || entry->hash != hash_of(entry->bytes, entry->key_len)) {
        fprintf(stderr, "hashmap: bucket %llu is broken\n", (unsigned long long)i);
        exit(1);
      }
      if (print)
        printf("%.*s=%.*s\n", (int)entry->key_len, entry->bytes, (int)entry->value_len, entry->bytes + entry->key_len);
      place = entry->next;
    }
  }
  if (seen != header(map)->entries) {
    fprintf(stderr, "hashmap: %llu entries of %llu\n", (unsigned long long)seen,
            (unsigned long long)header(map)->entries);
    exit(1);
  }
  return seen;
}

/* For a test that kills this program: each round changes ten keys, adds one, SYNCs, and reports that. */
static void rounds(struct map *map, unsigned long count) {
  const struct entry *last = map_get(map, "round");
  unsigned long from = last ? strtoul(last->bytes + last->key_len, NULL, 10) : 0;
  for (unsigned long round = from + 1; round <= from + count; round++) {
    char key[32], value[256];
    int len = snprintf(value, sizeof value, "%lu", round);
    for (int i = 0; i < 10; i++) {
      snprintf(key, sizeof key, "key%d", i);
      /* Longer and shorter, so that pieces are freed and reused. */
      int padded = len + 1 + (int)((round * 7 + (unsigned long)i * 31) % 200);
      memset(value + len, 0, sizeof value - (size_t)len);
      map_put(map, key, value, (size_t)padded);
    }
    snprintf(key, sizeof key, "of%lu", round);
    map_put(map, key, "here", 4);
    map_put(map, "round", value, (size_t)len + 1);
    map_sync(map);
    printf("%lu\n", round);
    fflush(stdout);
  }
}

/* After a kill: all ten keys and the added one must be of the last round. */
static void check_rounds(struct map *map) {
  uint64_t entries = map_check(map, 0);
  const struct entry *last = map_get(map, "round");
  unsigned long round = last ? strtoul(last->bytes + last->key_len, NULL, 10) : 0;
  for (int i = 0; round && i < 10; i++) {
    char key[32];
    snprintf(key, sizeof key, "key%d", i);
    const struct entry *entry = map_get(map, key);
    if (!entry || strtoul(entry->bytes + entry->key_len, NULL, 10) != round) {
      fprintf(stderr, "hashmap: %s is not of round %lu\n", key, round);
      exit(1);
    }
  }
  if (round && entries != round + 11) {
    fprintf(stderr, "hashmap: %llu entries after round %lu\n", (unsigned long long)entries, round);
    exit(1);
  }
  printf("%lu\n", round);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: hashmap FILE put KEY VALUE | get KEY | del KEY | list | check | rounds N\n");
    return 2;
  }
  struct map map;
  map_open(&map, argv[1]);
  const char *what = argv[2];
  int result = 0;
  if (!strcmp(what, "put") && argc == 5) {
    map_put(&map, argv[3], argv[4], strlen(argv[4]));
  } else if (!strcmp(what, "get") && argc == 4) {
    const struct entry *entry = map_get(&map, argv[3]);
    if (entry) printf("%.*s\n", (int)entry->value_len, entry->bytes + entry->key_len);
    result = !entry;
  } else if (!strcmp(what, "del") && argc == 4) {
    result = !map_del(&map, argv[3]);
  } else if (!strcmp(what, "list")) {
    map_check(&map, 1);
  } else if (!strcmp(what, "check")) {
    check_rounds(&map);
  } else if (!strcmp(what, "rounds") && argc == 4) {
    rounds(&map, strtoul(argv[3], NULL, 10));
  } else {
    result = 2;
  }
  map_close(&map);
  return result;
}

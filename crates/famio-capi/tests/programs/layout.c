/* Prints the sizes, offsets and constants of famio.h and famio_vnvml.h. */
#define _GNU_SOURCE
#include <famio.h>
#include <famio_vnvml.h>
#include <stdio.h>

#define CONSTANT(name) printf("constant " #name " %d\n", (int)(name))
#define FIELD(type, field) \
  printf("field " #type "." #field " at %zu of %zu\n", offsetof(struct type, field), sizeof(((struct type *)0)->field))

int main(void) {
  CONSTANT(O_ATOMIC);
  CONSTANT(NVADV_NORMAL);
  CONSTANT(NVADV_RANDOM);
  CONSTANT(NVADV_SEQUENTIAL);
  CONSTANT(NVADV_WILLNEED);
  CONSTANT(NVADV_DONTNEED);
  CONSTANT(NVRECOVER_DRY_RUN);
  CONSTANT(NVRECOVER_USE_JOURNAL);
  CONSTANT(NVRECOVER_USE_FILE);
  CONSTANT(NVTX_CHECK);
  CONSTANT(NVTX_NOSYNC);
  CONSTANT(NV_PRIVATE);
  CONSTANT(NV_SHARED);
  printf("size nvcounters %zu\n", sizeof(struct nvcounters));
  FIELD(nvcounters, size);
  FIELD(nvcounters, committed);
  FIELD(nvcounters, epoch_writes);
  FIELD(nvcounters, epoch_bytes);
  FIELD(nvcounters, epoch_reads);
  FIELD(nvcounters, mapped);
  FIELD(nvcounters, attached);
  FIELD(nvcounters, dirty);
  return 0;
}

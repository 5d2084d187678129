/* The thread's block of state, reached without __tls_get_addr: the interposer is loaded at start-up, so that the
 * initial-exec model is open to it, and nothing is allocated at a thread's first access. */
#include <stdint.h>

struct famio_thread {
    uint64_t words[8]; /* laid out by thread/mod.rs */
};

static __thread struct famio_thread block __attribute__((tls_model("initial-exec")));

struct famio_thread *famio_thread_block(void) { return &block; }
